# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.tile16 import TILE16
from tokenlight.kernels.native import F32, WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.linear.cpu import cpu as linear
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul
from tokenlight.kernels.ops.silu_mul.cpu import cpu as silu_mul

# A column of gates and the one of their ups are multiplied where both are in registers.
_QUANTIZED = frozenset(TILE16.values())
_TILE_ROWS = 16


@linear_silu_mul.implement("cpu", device="cpu", dtypes=F32, formats=_QUANTIZED, rank=TUNED)
def cpu(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    num_tokens, k = x_TK.shape
    n, width = weight.shape
    if n % 2 == 0 and n % (2 * _TILE_ROWS):
        return silu_mul(linear(x_TK, weight, bias_N, format=format))
    if (
        width != format.row_bytes(k)
        or k % format.block_elements
        or n % 2
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
    out_TF = torch.empty(num_tokens, n // 2)
    _cpu.linear(
        out_TF.data_ptr(),
        x_TK.data_ptr(),
        weight.data_ptr(),
        bias,
        num_tokens,
        n,
        k,
        x_TK.stride(0),
        WEIGHT_FORMATS[format],
        is_gated=True,
    )
    return out_TF


@linear_silu_mul.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, weight, out = call.operand(0), call.operand(1), call.outputs[0]
    if not x.has_dense_rows() or weight.num_rows % (2 * _TILE_ROWS):
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
        is_gated=True,
    )
    return True
