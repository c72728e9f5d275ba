# SPDX-License-Identifier: Apache-2.0
"""No code of its own: a native program adds share by share to where the sum shall be."""

from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.add.cpu import cpu as add
from tokenlight.kernels.ops.add_rms_norm.cpu import cpu as add_rms_norm
from tokenlight.kernels.ops.sum_add_rms_norm.contract import sum_add_rms_norm


@sum_add_rms_norm.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    if shares_TN.shape[1] % residual_TD.shape[1]:
        raise ValueError(f"{shares_TN.shape[1]} columns are no shares of {residual_TD.shape[1]}")
    total_TD, *shares = shares_TN.split(residual_TD.shape[1], dim=1)
    for share_TD in shares:
        total_TD = add(total_TD, share_TD)
    return add_rms_norm(total_TD, residual_TD, weight_D, eps=eps)


@sum_add_rms_norm.enter("cpu")
def entry(call: NativeCall) -> bool:
    shares, residual, weight = call.operand(0), call.operand(1), call.operand(2)
    out, total = call.outputs
    width = residual.row_elements
    is_plain = shares.has_dense_rows() and residual.has_dense_rows() and len(residual.shape) == 1
    if not is_plain or shares.arena_bytes is None:
        return False
    summed, stride = shares.place, shares.strides[0]
    for start in range(width, shares.row_elements, width):
        call.program.add(
            total.place,
            summed,
            shares.column(start),
            out.rows,
            width,
            stride,
            shares.strides[0],
            0.0,
        )
        summed, stride = total.place, width
    call.program.add_rms_norm(
        out.place,
        total.place,
        summed,
        residual.place,
        weight.place,
        out.rows,
        width,
        stride,
        residual.strides[0],
        call.options["eps"],
    )
    return True
