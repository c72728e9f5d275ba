# SPDX-License-Identifier: Apache-2.0
"""Tiles of the Triton attention fit into the shared memory of what they run on."""

import pytest

from tokenlight.kernels.ops.paged_attention.tiles import CHUNKED, DECODE, PREFILL, Tiles

# KiB that a block may have: H100 and H200, A100, and the consumer cards of three generations.
GPUS = (227, 163, 99)


def num_bytes(tiles: Tiles, head_dim: int) -> int:
    return 2 * head_dim * (tiles.rows + 2 * tiles.keys * tiles.num_stages)


@pytest.mark.parametrize("tiles", [DECODE, CHUNKED, PREFILL])
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
