# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: the angles of a step, computed once and handed to every layer.

Shapes: T tokens, d head dim.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.module import TensorModule
from tokenlight.nn.rope_scaling import scaled_frequencies
from tokenlight.weights import Slot, StoredTensor, Target


class Rope(TensorModule):
    """Angles position * frequency, in float32 throughout, as in the models' training code.

    An angle depends on its token's position alone, so keys may be cached and shared.
    """

    frequencies: Tensor

    def __init__(self, head_dim: int, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.has_factors = parameters["rope_type"] == "factors"
        frequencies, self.magnitude = scaled_frequencies(head_dim, parameters)
        self.register_buffer("frequencies", frequencies)

    def forward(self, positions_T: Tensor) -> Tensor:
        """Cosines, then sines: float32 [T, d]."""
        return kernels.rope_angles(positions_T, self.frequencies, magnitude=self.magnitude)

    def slots(self) -> Mapping[str, Slot]:
        if not self.has_factors:
            return {}
        return {"weight": Slot(part_shapes=((self.head_dim // 2,),), fill=self._fill)}

    def _fill(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.frequencies /= parts[0].dense(torch.float32)
