# SPDX-License-Identifier: Apache-2.0
"""The KV pool: layers and blocks do not overlap, and the bytes are what they are said to be."""

import torch

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
