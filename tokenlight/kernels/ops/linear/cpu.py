# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.native import F32, WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.linear.contract import linear


@linear.implement("cpu", device="cpu", dtypes=F32, formats=WEIGHT_FORMATS, rank=TUNED)
def cpu(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    return multiply(x_TK, weight, bias_N, format, is_gated=False)


def multiply(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, format: Format, *, is_gated: bool
) -> Tensor:
    """`linear`, or where it is gated `linear_silu_mul`; `weight` must be of a format for it."""
    num_tokens, k = x_TK.shape
    n, width = weight.shape
    if (
        width != (k if format.is_dense else format.row_bytes(k))
        or k % format.block_elements
        or not weight.is_contiguous()
    ):
        raise ValueError(f"a {format} weight of {list(weight.shape)} does not take {k} features")
    if x_TK.stride(1) != 1:
        x_TK = x_TK.contiguous()
    bias = 0
    if bias_N is not None:
        if bias_N.shape != (n,) or bias_N.dtype != torch.float32 or not bias_N.is_contiguous():
            raise ValueError(f"want a float32 bias of {n}, got {bias_N.dtype} {list(bias_N.shape)}")
        bias = bias_N.data_ptr()
    y = torch.empty(num_tokens, n // 2 if is_gated else n)
    _cpu.linear(
        y.data_ptr(),
        x_TK.data_ptr(),
        weight.data_ptr(),
        bias,
        num_tokens,
        n,
        k,
        x_TK.stride(0),
        WEIGHT_FORMATS[format],
        is_gated=is_gated,
    )
    return y


@linear.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, weight, out = call.operand(0), call.operand(1), call.outputs[0]
    if not x.has_dense_rows():
        return False
    call.program.linear(
        out.place,
        x.place,
        weight.place,
        call.place(2),
        out.rows,
        weight.num_rows,
        x.shape[0],
        x.strides[0],
        WEIGHT_FORMATS[call.options["format"]],
        is_gated=False,
    )
    return True
