# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: the angles of a step, computed once and handed to every layer.

Shapes: T tokens, d head dim.
"""

import torch
from torch import Tensor

from tokenlight.nn.module import TensorModule


class Rope(TensorModule):
    """Angles position / theta^(2i/d). float32 throughout, as in the models' training code."""

    frequencies: Tensor

    def __init__(self, head_dim: int, *, theta: float) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        self.register_buffer("frequencies", 1.0 / theta**exponents)

    def forward(self, positions_T: Tensor) -> Tensor:
        """Cosines, then sines: float32 [T, d]."""
        angles = positions_T.float()[:, None] * self.frequencies
        return torch.cat([angles.cos(), angles.sin()], dim=-1)
