# SPDX-License-Identifier: Apache-2.0
"""The KV pool: layers and blocks do not overlap, and the bytes are what they are said to be."""

import torch

from tokenlight.kv import DevicePool, kv_bytes_per_token

SIZES = {"num_layers": 3, "num_kv_heads": 2, "head_dim": 8}


def test_every_layer_has_its_own_keys_and_values() -> None:
    pool = DevicePool(**SIZES, num_blocks=5, block_tokens=4, dtype=torch.float16)
    caches = [cache for layer in range(3) for cache in pool.layer(layer)]
    for mark, cache in enumerate(caches):
        assert cache.shape == (5, 2, 4, 8)
        assert cache.is_contiguous()
        cache.fill_(mark)
    assert [cache.unique().tolist() for cache in caches] == [[mark] for mark in range(6)]


def test_the_bytes_of_a_token_are_those_of_the_pool() -> None:
    pool = DevicePool(**SIZES, num_blocks=5, block_tokens=4, dtype=torch.float16)
    assert pool.num_bytes == 20 * kv_bytes_per_token(**SIZES, dtype=torch.float16)
    assert kv_bytes_per_token(**SIZES, dtype=torch.float32) == 384
