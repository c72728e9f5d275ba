# SPDX-License-Identifier: Apache-2.0
"""The KV pool: layers and blocks do not overlap, and the bytes are what they are said to be."""

from pathlib import Path

import pytest
import torch

from tokenlight.kernels.weight_memory import LARGE_PAGE_BYTES
from tokenlight.kv import DevicePool, kv_bytes_per_token
from tokenlight.nn import CacheSpec

LAYERS = [CacheSpec.keys_values(2, 8), CacheSpec(((1, 24),)), CacheSpec.keys_values(2, 8)]
SHAPES = [(5, 2, 4, 8), (5, 2, 4, 8), (5, 1, 4, 24), (5, 2, 4, 8), (5, 2, 4, 8)]


def test_every_layer_has_tensors_of_its_own() -> None:
    pool = DevicePool(LAYERS, num_blocks=5, block_tokens=4, dtype=torch.float16)
    caches = [cache for layer in range(3) for cache in pool.layer(layer)]
    assert [cache.shape for cache in caches] == SHAPES
    for mark, cache in enumerate(caches):
        assert cache.is_contiguous()
        cache.fill_(mark)
    assert [cache.unique().tolist() for cache in caches] == [[mark] for mark in range(5)]


def test_the_bytes_of_a_token_are_those_of_the_pool() -> None:
    pool = DevicePool(LAYERS, num_blocks=5, block_tokens=4, dtype=torch.float16)
    assert pool.num_bytes == 20 * kv_bytes_per_token(LAYERS, torch.float16)
    assert kv_bytes_per_token(LAYERS, torch.float32) == 4 * (32 + 24 + 32)


def test_memory_is_of_large_pages_that_come_as_blocks_are_written() -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("only Linux tells how many pages a process has")

    def resident_bytes() -> int:
        return int(statm.read_text().split()[1]) * 4096

    before = resident_bytes()
    pool = DevicePool(LAYERS, num_blocks=1 << 20, block_tokens=4, dtype=torch.float16)
    assert pool.num_bytes > 256 << 20
    assert pool.layer(0)[0].data_ptr() % LARGE_PAGE_BYTES == 0
    assert resident_bytes() - before < pool.num_bytes / 4
    pool.layer(2)[1][7].fill_(3)
    assert pool.layer(2)[1][7].eq(3).all()
    assert resident_bytes() - before < pool.num_bytes / 4
