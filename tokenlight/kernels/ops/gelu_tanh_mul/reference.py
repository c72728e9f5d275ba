# SPDX-License-Identifier: Apache-2.0
from torch import Tensor
from torch.nn.functional import gelu

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.gelu_tanh_mul.contract import gelu_tanh_mul


@gelu_tanh_mul.implement("reference", device="any", rank=REFERENCE)
def reference(gate_up_T2F: Tensor) -> Tensor:
    gate_TF, up_TF = gate_up_T2F.float().chunk(2, dim=-1)
    return (gelu(gate_TF, approximate="tanh") * up_TF).to(gate_up_T2F.dtype)
