# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, rows_of
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.gather_rows.contract import gather_rows


@gather_rows.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TD: Tensor, rows_S: Tensor) -> Tensor:
    if rows_S.dtype is not torch.int32 or rows_S.dim() != 1:
        raise ValueError(f"want int32 rows, got {rows_S.dtype} {list(rows_S.shape)}")
    x, out_SD = rows_of(x_TD), torch.empty(rows_S.shape[0], *x_TD.shape[1:])
    width = x.shape[1]
    _cpu.copy_rows(
        out_SD.data_ptr(),
        x.data_ptr(),
        rows_S.contiguous().data_ptr(),
        rows_S.shape[0],
        x.shape[0],
        width,
        width,
        x.stride(0),
    )
    return out_SD


@gather_rows.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, picked, out = call.operand(0), call.operand(1), call.outputs[0]
    if not x.has_dense_rows() or picked.strides != (1,):
        return False
    width = out.row_elements
    call.program.copy_rows(
        out.place,
        0,
        x.place,
        picked.place,
        out.rows,
        _cpu.Count(1, 0),
        width,
        width,
        x.strides[0],
    )
    return True
