# SPDX-License-Identifier: Apache-2.0
"""The feed-forward layer.

Shapes: T tokens, D hidden, F inner features.
"""

from collections.abc import Callable

from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.linear import FusedLinear, Linear
from tokenlight.nn.module import TensorModule
from tokenlight.spmd import PARTIAL, REPLICATE, placed


class GatedMLP(TensorModule):
    """down(act(gate(x)) * up(x)), gate and up as one product. `act_mul` takes both side by side."""

    def __init__(
        self,
        dim: int,
        inner_dim: int,
        *,
        bias: bool = False,
        act_mul: Callable[[Tensor], Tensor] = kernels.silu_mul,
    ) -> None:
        super().__init__()
        self.act_mul = act_mul
        self.gate_up_proj = FusedLinear(dim, (inner_dim, inner_dim), bias=bias)
        self.down_proj = Linear(inner_dim, dim, bias=bias)

    @placed("dense_tp", x_TD=REPLICATE, returns=PARTIAL)
    def forward(self, x_TD: Tensor) -> Tensor:
        return self.down_proj(self.act_mul(self.gate_up_proj(x_TD)))
