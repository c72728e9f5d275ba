# SPDX-License-Identifier: Apache-2.0
"""How a model would run on a mesh, found without its weights and without a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.models.sharding import Sharding
from tokenlight.nn import CacheSpec, probe_sampled_rows, probe_step
from tokenlight.spmd import Mesh, Ranks, placed_graph
from tokenlight.spmd.plan import Layer, Weight, read_layers, read_weights, sent_per_row


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One rank's part; all ranks make the same calls in the same order."""

    mesh: Mesh
    layers: tuple[Layer, ...]
    weights: tuple[Weight, ...]
    kv_token_bytes: int
    """KV of one token on this rank."""

    @property
    def weight_bytes(self) -> int:
        return sum(weight.num_bytes for weight in self.weights)

    @property
    def replicated_bytes(self) -> int:
        return sum(weight.num_bytes for weight in self.weights if weight.is_replicated)

    @property
    def collectives(self) -> dict[str, int]:
        """How many of each kind a step calls."""
        counts = Counter[str]()
        for layer in self.layers:
            counts.update(call.op for call in layer.calls * len(layer.names) if call.is_collective)
        return dict(counts)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        replicated = {_kind_of(weight.name) for weight in self.weights if weight.is_replicated}
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "collectives": self.collectives,
            "weight_bytes": self.weight_bytes,
            "replicated_bytes": self.replicated_bytes,
            "replicated": sorted(replicated),
            "kv_token_bytes": self.kv_token_bytes,
            "sent_token_bytes": self.sent_token_bytes,
            "sent_sampled_row_bytes": self.sent_sampled_row_bytes,
        }

    @property
    def sent_token_bytes(self) -> float:
        return sent_per_row(self.layers, "T")

    @property
    def sent_sampled_row_bytes(self) -> float:
        return sent_per_row(self.layers, "S")


def plan_model(
    sharding: Sharding,
    caches: Sequence[CacheSpec],
    *,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
) -> ModelPlan:
    """Compile up to where kernels would be chosen.

    Args:
        sharding: of the rank.
        caches: what each layer keeps of a token on it.
        dtype: of activations.
        kv_dtype: of the KV cache.
    """
    model, mesh = sharding.shapes, sharding.mesh
    ranks = Ranks(mesh, sharding.layouts)
    body = placed_graph(model, "hidden", probe_step(_Caches(caches, kv_dtype)), ranks)
    hidden = next(iter(reversed(body.nodes))).meta["value"]
    probe = probe_sampled_rows(hidden.shape[1], dtype)
    head = placed_graph(model, "logits", probe, ranks)
    return ModelPlan(
        mesh,
        (*read_layers(body), *read_layers(head)),
        tuple(read_weights(model, dict(sharding.layouts))),
        sum(spec.token_elements for spec in caches) * kv_dtype.itemsize,
    )


def _kind_of(name: str) -> str:
    """`layers.3.self_attn.q_norm.weight_D` -> `self_attn.q_norm`: the same in every layer."""
    path = name.rpartition(".")[0].split(".")
    return ".".join(path[2:] if path[0] == "layers" else path)


class _Caches:
    """A cache of no blocks."""

    def __init__(self, specs: Sequence[CacheSpec], dtype: torch.dtype) -> None:
        self._layers = [
            [
                torch.empty(0, heads, 1, elements, dtype=dtype, device="meta")
                for heads, elements in spec.tensors
            ]
            for spec in specs
        ]

    def layer(self, index: int) -> Sequence[Tensor]:
        return self._layers[index]
