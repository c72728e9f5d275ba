# SPDX-License-Identifier: Apache-2.0
"""What a forward is told: the tokens of one step, and where the KV of their requests lies.

Shapes: T tokens of all requests packed, R requests, S sampled rows, B blocks per request; KV cache:
N blocks, K kv heads, P tokens per block, d head dim. Integers are int32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tokenlight.spmd import PROBE_ROWS


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What a layer keeps of each token: tensors of (heads, elements per head)."""

    tensors: tuple[tuple[int, int], ...]

    @classmethod
    def keys_values(cls, num_kv_heads: int, head_dim: int) -> "CacheSpec":
        return cls(((num_kv_heads, head_dim),) * 2)

    @property
    def token_elements(self) -> int:
        return sum(heads * elements for heads, elements in self.tensors)


class KvCache(Protocol):
    """Where the KV lives; `kv.DevicePool` is one."""

    def layer(self, index: int) -> Sequence[Tensor]:
        """A layer's tensors, in the order of its `CacheSpec`, each [N, K, P, d]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. Request i has the rows query_starts[i] to query_starts[i + 1]."""

    token_ids_T: Tensor
    positions_T: Tensor
    query_starts: Tensor
    """[R + 1], from 0 to T."""
    kv_lens: Tensor
    """[R]: tokens of each request's KV once this step has written its own."""
    slots: Tensor
    """[R]: each request's row in `block_table`."""
    block_table: Tensor
    """[slots, B]: the block that holds tokens P*b to P*b + P - 1 of a request."""
    sampled_rows: Tensor
    """[S]: rows whose logits are wanted."""
    kv: KvCache

    @property
    def num_tokens(self) -> int:
        return self.token_ids_T.shape[0]

    @property
    def num_sampled(self) -> int:
        return self.sampled_rows.shape[0]


@dataclass(frozen=True, slots=True)
class SampledRows:
    """What logits are made of: some rows of what the last layer gave."""

    x_TD: Tensor
    rows_S: Tensor

    @property
    def num_tokens(self) -> int:
        return self.x_TD.shape[0]

    @property
    def num_sampled(self) -> int:
        return self.rows_S.shape[0]


def probe_step(kv: KvCache) -> Step:
    """A step without numbers, for the compiler: its row counts stand for those of any step."""
    tokens, sampled = PROBE_ROWS["T"], PROBE_ROWS["S"]

    def integers(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device="meta")

    return Step(
        token_ids_T=integers(tokens),
        positions_T=integers(tokens),
        query_starts=integers(2),
        kv_lens=integers(1),
        slots=integers(1),
        block_table=integers(1, 1),
        sampled_rows=integers(sampled),
        kv=_ProbeCache(kv),
    )


def probe_sampled_rows(dim: int, dtype: torch.dtype) -> SampledRows:
    """Likewise, of hidden states of `dim` elements."""
    return SampledRows(
        torch.empty(PROBE_ROWS["T"], dim, dtype=dtype, device="meta"),
        torch.empty(PROBE_ROWS["S"], dtype=torch.int32, device="meta"),
    )


class _ProbeCache:
    def __init__(self, kv: KvCache) -> None:
        self._kv = kv

    def layer(self, index: int) -> Sequence[Tensor]:
        return [cache.to("meta") for cache in self._kv.layer(index)]
