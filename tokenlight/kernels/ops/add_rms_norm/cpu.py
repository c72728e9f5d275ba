# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, rows_of
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm


@add_rms_norm.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    width = x_TD.shape[-1]
    if (
        residual_TD.shape != x_TD.shape
        or weight_D.shape != (width,)
        or not (residual_TD.dtype == weight_D.dtype == torch.float32)
    ):
        raise ValueError(
            f"want a float32 residual of {list(x_TD.shape)} and a gain of {width}, got "
            f"{residual_TD.dtype} {list(residual_TD.shape)}, {weight_D.dtype} "
            f"{list(weight_D.shape)}"
        )
    x, residual = rows_of(x_TD), rows_of(residual_TD)
    out_TD, sum_TD = torch.empty(x_TD.shape), torch.empty(x_TD.shape)
    _cpu.add_rms_norm(
        out_TD.data_ptr(),
        sum_TD.data_ptr(),
        x.data_ptr(),
        residual.data_ptr(),
        weight_D.contiguous().data_ptr(),
        x.shape[0],
        width,
        x.stride(0),
        residual.stride(0),
        eps,
    )
    return out_TD, sum_TD


@add_rms_norm.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, residual, weight = call.operand(0), call.operand(1), call.operand(2)
    out, total = call.outputs
    if not (x.has_dense_rows() and residual.has_dense_rows() and len(x.shape) == 1):
        return False
    call.program.add_rms_norm(
        out.place,
        total.place,
        x.place,
        residual.place,
        weight.place,
        out.rows,
        x.shape[0],
        x.strides[0],
        residual.strides[0],
        call.options["eps"],
    )
    return True
