# SPDX-License-Identifier: Apache-2.0
"""Decode attention of requests that are all short: a cluster of blocks a head."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tokenlight.kernels.cuda import Source
from tokenlight.kernels.ops.paged_attention.contract import SHORT_TOKENS
from tokenlight.kernels.ops.paged_attention.decode import (
    SHORT_CHUNKS,
    TEAM_WARPS,
    Batch,
    Tiling,
    params,
)

_SOURCE = Source(Path(__file__).with_name("cuda_short.cu"))


def serves(batch: Batch) -> bool:
    """Whether the table has no room for a request that is not short."""
    return batch.block_table.shape[1] * batch.k_cache_BKPd.shape[2] <= SHORT_TOKENS


def launch(out_THd: Tensor, batch: Batch, tiles: Tiling, chunks_shift: int) -> None:
    """Fill all rows. `serves` must hold."""
    num_tokens, _, head_dim = batch.q_THd.shape
    num_tiles = tiles.most(num_tokens, batch.slots.shape[0])
    if not num_tiles:
        return
    kernel = _SOURCE.kernel(
        f"attend_short_{head_dim}_{tiles.rows}",
        threads=32 * TEAM_WARPS,
        shared_bytes=_shared_bytes(head_dim, tiles.rows),
    )
    num_clusters = num_tiles * batch.k_cache_BKPd.shape[1]
    kernel.launch((num_clusters * SHORT_CHUNKS, 1), params(batch, out_THd, tiles, chunks_shift))


def _shared_bytes(head_dim: int, rows: int) -> int:
    """The kernel's `Shared`, and the queries where they are kept there."""
    places = rows * head_dim // 4 + SHORT_CHUNKS
    state = TEAM_WARPS * 8 * (4 * head_dim + 8) + 24 * places + 16
    return state + (2 * rows * (head_dim + 32) if rows > 8 else 0)
