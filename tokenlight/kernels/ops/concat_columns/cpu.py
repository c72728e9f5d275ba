# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, rows_of
from tokenlight.kernels.native_call import NOTHING, NativeCall
from tokenlight.kernels.ops.concat_columns.contract import concat_columns


@concat_columns.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(*parts_TN: Tensor) -> Tensor:
    num_tokens = parts_TN[0].shape[0]
    if any(p.shape[:-1] != (num_tokens,) or p.dtype is not torch.float32 for p in parts_TN):
        raise ValueError(
            f"want float32 matrices of {num_tokens} rows, got "
            f"{', '.join(f'{p.dtype} {list(p.shape)}' for p in parts_TN)}"
        )
    width, column = sum(p.shape[1] for p in parts_TN), 0
    out_TN = torch.empty(num_tokens, width)
    for part in map(rows_of, parts_TN):
        _cpu.copy_rows(
            out_TN.data_ptr() + 4 * column,
            part.data_ptr(),
            0,
            num_tokens,
            num_tokens,
            part.shape[1],
            width,
            part.stride(0),
        )
        column += part.shape[1]
    return out_TN


@concat_columns.enter("cpu")
def entry(call: NativeCall) -> bool:
    parts, out, column = [p for p in call.operands if p is not None], call.outputs[0], 0
    if not all(part.has_dense_rows() for part in parts):
        return False
    for part in parts:
        call.program.copy_rows(
            out.place,
            column,
            part.place,
            NOTHING,
            out.rows,
            out.rows,
            part.row_elements,
            out.row_elements,
            part.strides[0],
        )
        column += part.row_elements
    return True
