# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.native import WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.embedding.contract import embedding


@embedding.implement("cpu", device="cpu", dtypes={torch.int32}, formats=WEIGHT_FORMATS, rank=TUNED)
def cpu(
    ids_T: Tensor, table: Tensor, *, format: Format, dtype: torch.dtype = torch.float32
) -> Tensor:
    if not (table.is_contiguous() and table.dim() == 2 and ids_T.dim() == 1):
        raise ValueError(
            f"want a contiguous table of two dimensions and ids of one, got {list(table.shape)} "
            f"and {list(ids_T.shape)}"
        )
    width = table.shape[1] // (1 if format.is_dense else format.block_bytes) * format.block_elements
    out_TD = torch.empty(ids_T.shape[0], width)
    _cpu.embedding(
        out_TD.data_ptr(),
        ids_T.contiguous().data_ptr(),
        table.data_ptr(),
        ids_T.shape[0],
        table.shape[0],
        width,
        WEIGHT_FORMATS[format],
    )
    return out_TD.to(dtype)


@embedding.enter("cpu")
def entry(call: NativeCall) -> bool:
    ids, table, out = call.operand(0), call.operand(1), call.outputs[0]
    if ids.strides != (1,) or out.dtype is not torch.float32:
        return False
    call.program.embedding(
        out.place,
        ids.place,
        table.place,
        out.rows,
        table.num_rows,
        out.row_elements,
        WEIGHT_FORMATS[call.options["format"]],
    )
    return True
