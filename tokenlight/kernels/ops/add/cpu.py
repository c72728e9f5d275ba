# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, rows_of
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.add.contract import add


@add.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TD: Tensor, y_TD: Tensor) -> Tensor:
    if y_TD.shape != x_TD.shape or y_TD.dtype is not torch.float32:
        raise ValueError(
            f"want float32 {list(x_TD.shape)}, got {y_TD.dtype} {list(y_TD.shape)} to add"
        )
    x, y, out_TD = rows_of(x_TD), rows_of(y_TD), torch.empty(x_TD.shape)
    _cpu.add(
        out_TD.data_ptr(),
        x.data_ptr(),
        y.data_ptr(),
        x.shape[0],
        x.shape[1],
        x.stride(0),
        y.stride(0),
        0.0,
    )
    return out_TD


@add.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, y, out = call.operand(0), call.operand(1), call.outputs[0]
    if not (x.has_dense_rows() and y.has_dense_rows()):
        return False
    call.program.add(
        out.place,
        x.place,
        y.place,
        out.rows,
        out.row_elements,
        x.strides[0],
        y.strides[0],
        0.0,
    )
    return True
