# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import Source, num_multiprocessors, portable, workspace
from tokenlight.kernels.ops.paged_attention import cuda_prefill, cuda_short
from tokenlight.kernels.ops.paged_attention.contract import paged_attention
from tokenlight.kernels.ops.paged_attention.decode import (
    SHORT_CHUNKS,
    STAGE_TOKENS,
    TEAM_WARPS,
    Batch,
    Tiling,
    params,
    tiling,
)

_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_THREADS = {8: 288, 16: 288, 32: 256}
"""By rows of a tile."""
_MAX_REQUESTS = 256
_MAX_QUERIES = 8
_MAX_PARTIALS_BYTES = 256 << 20
_MAX_CHUNKS_SHIFT = 7
_STAGES = 6
_STATE_BYTES = 7312
BF16 = frozenset({torch.bfloat16})


def serves(q_THd: Tensor, k_cache_BKPd: Tensor, slots: Tensor) -> bool:
    """Whether the kernel takes these shapes, and is the one to take them: few queries a request."""
    num_tokens, num_heads, head_dim = q_THd.shape
    _, num_kv_heads, block_tokens, _ = k_cache_BKPd.shape
    num_requests = slots.shape[0]
    return (
        head_dim in (64, 128)
        and num_heads // num_kv_heads <= 32
        and block_tokens >= 16
        and block_tokens & (block_tokens - 1) == 0
        and q_THd.stride(0) % 8 == 0
        and (
            num_tokens == num_requests
            or (num_tokens <= _MAX_QUERIES * num_requests and num_requests <= _MAX_REQUESTS)
        )
    )


def chunks_shift(num_multiprocessors: int, num_kv_heads: int) -> int:
    """A long cache has so many chunks, as a power of two: as many as a head has blocks."""
    return min(max(num_multiprocessors // num_kv_heads, 1).bit_length() - 1, _MAX_CHUNKS_SHIFT)


def attend(  # noqa: PLR0913 - the parts of a paged batch
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """One launch of short requests, or one per `_MAX_REQUESTS` requests. `serves` must hold.

    What a table has room for says which: a row has the same bits either way.
    """
    batch = Batch(
        *(q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots, sinks_H),
        *(scale, window, softcap),
    )
    out_THd = torch.empty(q_THd.shape, dtype=q_THd.dtype, device=q_THd.device)
    shift = chunks_shift(num_multiprocessors(), k_cache_BKPd.shape[1])
    tiles = tiling(batch, shift)
    launch = cuda_short.launch if cuda_short.serves(batch) else _launch
    launch(out_THd, batch, tiles, shift)
    return out_THd


def _launch(out_THd: Tensor, batch: Batch, tiles: Tiling, shift: int) -> None:
    num_tokens, _, head_dim = batch.q_THd.shape
    num_kv_heads, num_requests = batch.k_cache_BKPd.shape[1], batch.slots.shape[0]
    device = batch.q_THd.device
    partial_bytes = 4 * (-(-tiles.rows_per_tile * (head_dim + 2) // 4) * 4)
    # Of a tile; short ones have more than others where there are many kv heads.
    most_chunks = max(1 << shift, SHORT_CHUNKS)
    per_launch = num_requests
    if tiles.is_decode:
        fitting = _MAX_PARTIALS_BYTES // (partial_bytes * num_kv_heads * most_chunks)
        per_launch = max(1, min(fitting, _MAX_REQUESTS))
    kernel = _SOURCE.kernel(
        f"attend_{head_dim}_{tiles.rows}",
        threads=_THREADS[tiles.rows],
        shared_bytes=_shared_bytes(head_dim, tiles.rows, tiles.rows_per_tile),
    )
    for first in range(0, num_requests, per_launch):
        count = min(per_launch, num_requests - first)
        num_tiles = tiles.most(num_tokens, count)
        num_items = num_tiles * num_kv_heads * most_chunks
        partials = workspace("attention partials", num_items * partial_bytes, device)
        counters = workspace("attention counters", 4 * (2 + num_tiles * num_kv_heads), device)
        of_some = batch._replace(
            query_starts=batch.query_starts[first:],
            kv_lens=batch.kv_lens[first:],
            slots=batch.slots[first : first + count],
        )
        launched = params(of_some, out_THd, tiles, shift)
        launched.partials, launched.counters = partials.data_ptr(), counters.data_ptr()
        kernel.launch((min(num_multiprocessors(), num_items), 1), launched)


def _shared_bytes(head_dim: int, rows: int, rows_per_tile: int) -> int:
    """The ring, the warps' sums, the kernel's `Shared`, and queries where they are kept there."""
    ring = _STAGES * 2 * (STAGE_TOKENS * 2 * head_dim + 128)
    sums = TEAM_WARPS * min(8, -(-rows_per_tile // 2) * 2) * 4 * head_dim
    return ring + sums + _STATE_BYTES + (2 * rows * (head_dim + 32) if rows > 8 else 0)


@paged_attention.implement(
    "cuda",
    device="cuda",
    needs={"sm90"},
    dtypes=BF16,
    stored=BF16,
    rank=TUNED,
    is_row_invariant=False,
)
def cuda(  # noqa: PLR0913 - the parts of a paged batch
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    batch = (q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots, sinks_H)
    options: dict[str, Any] = {"scale": scale, "window": window, "softcap": softcap}
    if serves(q_THd, k_cache_BKPd, slots):
        return attend(*batch, **options)
    # Many queries a request: each tile of 32 rows would read the cache again.
    if not (window or softcap) and cuda_prefill.serves(q_THd, k_cache_BKPd, slots, sinks_H):
        return cuda_prefill.attend(*batch[:-1], scale=scale)
    return portable(paged_attention, *batch, **options)(*batch, **options)
