# SPDX-License-Identifier: Apache-2.0
"""Tiles of the Triton attention fit into the shared memory of what they run on."""

import pytest
import torch

from tokenlight.kernels.ops.paged_attention.tiles import (
    CHUNKED,
    DECODE,
    FLOAT8_PREFILL,
    PREFILL,
    Tiles,
    in_chunks,
)

# KiB that a block may have: H100 and H200, A100, and the consumer cards of three generations.
GPUS = (227, 163, 99)


def num_bytes(tiles: Tiles, head_dim: int) -> int:
    return 2 * head_dim * (tiles.rows + 2 * tiles.keys * tiles.num_stages)


@pytest.mark.parametrize("tiles", [DECODE, CHUNKED, PREFILL, FLOAT8_PREFILL, CHUNKED.of_float8()])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kib", GPUS)
def test_stages_are_dropped_until_they_fit(tiles: Tiles, head_dim: int, kib: int) -> None:
    fitting = tiles.fitting(head_dim, 2, kib << 10)
    assert fitting == tiles._replace(num_stages=fitting.num_stages)
    assert 1 <= fitting.num_stages <= tiles.num_stages
    assert num_bytes(fitting, head_dim) < kib << 10
    more = fitting._replace(num_stages=fitting.num_stages + 1)
    assert fitting == tiles or num_bytes(more, head_dim) > (kib - 2) << 10


def test_on_a_hopper_nothing_is_dropped_and_two_decodes_share_a_multiprocessor() -> None:
    for tiles in (DECODE, CHUNKED, PREFILL):
        assert tiles.fitting(128, 2, 227 << 10) == tiles
    assert 2 * num_bytes(DECODE, 128) < 226 << 10


@pytest.mark.parametrize("is_prefill", [False, True])
def test_what_is_widened_has_a_stage_more_and_float32_has_one(is_prefill: bool) -> None:
    f32, bf16, f8 = torch.float32, torch.bfloat16, torch.float8_e4m3fn
    for head_dim in (64, 128, 256):
        plain = in_chunks(bf16, bf16, head_dim, is_prefill=is_prefill)
        assert in_chunks(bf16, f8, head_dim, is_prefill=is_prefill) == plain.of_float8()
        assert in_chunks(f32, f8, head_dim, is_prefill=is_prefill).num_stages == 1
        assert plain.keys == 64  # all add alike
    assert in_chunks(bf16, bf16, 128, is_prefill=is_prefill).rows == (128 if is_prefill else 64)
