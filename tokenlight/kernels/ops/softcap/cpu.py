# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.softcap.contract import softcap


@softcap.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TN: Tensor, *, cap: float) -> Tensor:
    if not cap > 0:
        raise ValueError(f"cap must be greater than 0, got {cap}")
    num_tokens, width = x_TN.shape
    if x_TN.stride(1) != 1:
        x_TN = x_TN.contiguous()
    out_TN = torch.empty(num_tokens, width)
    _cpu.softcap(out_TN.data_ptr(), x_TN.data_ptr(), num_tokens, width, x_TN.stride(0), cap)
    return out_TN


@softcap.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, out, cap = call.operand(0), call.outputs[0], call.options["cap"]
    if not x.has_dense_rows():
        return False
    call.program.softcap(out.place, x.place, out.rows, out.row_elements, x.strides[0], cap)
    return True
