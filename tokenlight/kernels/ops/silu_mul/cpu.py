# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.silu_mul.contract import silu_mul


@silu_mul.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(gate_up_T2F: Tensor) -> Tensor:
    num_tokens, both = gate_up_T2F.shape
    if both % 2 or gate_up_T2F.stride(1) != 1:
        raise ValueError(f"want contiguous rows of gate and up, got {list(gate_up_T2F.shape)}")
    out_TF = torch.empty(num_tokens, both // 2)
    _cpu.silu_mul(
        out_TF.data_ptr(),
        gate_up_T2F.data_ptr(),
        num_tokens,
        both // 2,
        gate_up_T2F.stride(0),
        0.0,
    )
    return out_TF


@silu_mul.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, out = call.operand(0), call.outputs[0]
    if not x.has_dense_rows():
        return False
    call.program.silu_mul(out.place, x.place, out.rows, out.row_elements, x.strides[0], 0.0)
    return True
