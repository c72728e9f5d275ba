# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.tile16 import TILE16
from tokenlight.kernels.native import F32, WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.linear.cpu import cpu as linear
from tokenlight.kernels.ops.linear.cpu import multiply
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul
from tokenlight.kernels.ops.silu_mul.cpu import cpu as silu_mul

# A column of gates and the one of their ups are multiplied where both are in registers.
_QUANTIZED = frozenset(TILE16.values())
_TILE_ROWS = 16


@linear_silu_mul.implement("cpu", device="cpu", dtypes=F32, formats=_QUANTIZED, rank=TUNED)
def cpu(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    n = weight.shape[0]
    if n % 2:
        raise ValueError(f"as many gates as ups are an even number of rows, got {n}")
    if n % (2 * _TILE_ROWS):
        return silu_mul(linear(x_TK, weight, bias_N, format=format))
    return multiply(x_TK, weight, bias_N, format, is_gated=True)


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
