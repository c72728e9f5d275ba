# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.gelu_tanh_mul.contract import gelu_tanh_mul
from tokenlight.kernels.ops.silu_mul.triton import gated
from tokenlight.kernels.triton.launch import FLOATS


@gelu_tanh_mul.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(gate_up_T2F: Tensor) -> Tensor:
    return gated(gate_up_T2F, "gelu_tanh")
