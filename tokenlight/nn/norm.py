# SPDX-License-Identifier: Apache-2.0
"""Normalisation.

Shapes: T tokens, D the normalised dimension.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.module import TensorModule
from tokenlight.weights import Slot, StoredTensor, Target


class RMSNorm(TensorModule):
    """Each row to unit root-mean-square, times a gain per channel."""

    weight_D: Tensor

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps
        self.register_buffer("weight_D", None)

    def forward(self, x_TD: Tensor) -> Tensor:
        return kernels.rms_norm(x_TD, self.weight_D, eps=self.eps)

    def slots(self) -> Mapping[str, Slot]:
        return {"weight": Slot(part_shapes=((self.dim,),), fill=self.fill)}

    def fill(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.weight_D = parts[0].dense(target.dtype).to(target.device)


class OffsetRMSNorm(RMSNorm):
    """The same, of models that keep the gain's distance from 1. GGUF files have the 1 added."""

    def fill(self, parts: Sequence[StoredTensor], target: Target) -> None:
        super().fill(parts, target)
        if parts[0].layout == "huggingface":
            self.weight_D += 1
