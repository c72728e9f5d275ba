# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, rows_of
from tokenlight.kernels.native_call import NOTHING, NativeCall
from tokenlight.kernels.ops.scale.contract import scale


@scale.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TD: Tensor, *, factor: float) -> Tensor:
    x, out_TD = rows_of(x_TD), torch.empty(x_TD.shape)
    _cpu.add(out_TD.data_ptr(), x.data_ptr(), 0, x.shape[0], x.shape[1], x.stride(0), 0, factor)
    return out_TD


@scale.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, out = call.operand(0), call.outputs[0]
    if not x.has_dense_rows():
        return False
    factor = call.options["factor"]
    call.program.add(
        out.place, x.place, NOTHING, out.rows, out.row_elements, x.strides[0], 0, factor
    )
    return True
