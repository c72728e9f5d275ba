# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.native import F32, WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.head_linear.contract import head_linear


@head_linear.implement("cpu", device="cpu", dtypes=F32, formats=WEIGHT_FORMATS, rank=TUNED)
def cpu(x_THK: Tensor, weight: Tensor, *, format: Format) -> Tensor:
    num_tokens, num_heads, k = x_THK.shape
    n = weight.shape[1]
    width = k if format.is_dense else format.row_bytes(k)
    if (
        weight.shape != (num_heads, n, width)
        or k % format.block_elements
        or not weight.is_contiguous()
        or x_THK.stride()[1:] != (k, 1)
    ):
        raise ValueError(
            f"a {format} weight of {list(weight.shape)} does not take heads of "
            f"{list(x_THK.shape)}, strides {x_THK.stride()}"
        )
    y_THN = torch.empty(num_tokens, num_heads, n)
    _cpu.head_linear(
        y_THN.data_ptr(),
        x_THK.data_ptr(),
        weight.data_ptr(),
        num_tokens,
        num_heads,
        n,
        k,
        x_THK.stride(0),
        WEIGHT_FORMATS[format],
    )
    return y_THN


@head_linear.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, weight = call.operand(0), call.operand(1)
    if not x.has_dense_rows():
        return False
    num_heads, k = x.shape
    call.program.head_linear(
        call.outputs[0].place,
        x.place,
        weight.place,
        x.rows,
        num_heads,
        weight.shape[0],
        k,
        x.strides[0],
        WEIGHT_FORMATS[call.options["format"]],
    )
    return True
