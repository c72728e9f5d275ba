# SPDX-License-Identifier: Apache-2.0
"""The feed-forward layer.

Shapes: T tokens, D hidden, F inner features.
"""

from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import FusedLinear, Linear
from tokenlight.nn.module import TensorModule


class GatedMLP(TensorModule):
    """down(silu(gate(x)) * up(x)), gate and up as one product."""

    def __init__(self, dim: int, inner_dim: int) -> None:
        super().__init__()
        self.gate_up_proj = FusedLinear(dim, (inner_dim, inner_dim))
        self.down_proj = Linear(inner_dim, dim)

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.down_proj(kernels.silu_mul(self.gate_up_proj(x_TD)))
