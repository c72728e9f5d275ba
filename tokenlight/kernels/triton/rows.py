# SPDX-License-Identifier: Apache-2.0
"""Rows moved by a Triton kernel: widened or narrowed, multiplied, picked, put in columns."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def move_rows(
    out_TN: Tensor,
    x_TN: Tensor,
    *,
    rows_T: Tensor | None = None,
    first_row: int = 0,
    missing: float = float("nan"),
    factor: float = 1.0,
) -> None:
    """Write rows of `x_TN`, times `factor`, to `out_TN`, in its dtype.

    Args:
        out_TN: last dimension contiguous.
        x_TN: likewise; as wide.
        rows_T: int32: which row each row of `out_TN` is, counted from `first_row`; None for the
            same.
        first_row: the number of the first row of `x_TN`.
        missing: what rows get that are not there: NaN, since the host waits for no error.
        factor: multiplies in float32.
    """
    num_rows, width = out_TN.shape
    if num_rows and width:
        _move[(num_rows, triton.cdiv(width, _BLOCK))](
            *(out_TN, x_TN, out_TN if rows_T is None else rows_T, len(x_TN)),
            *(out_TN.stride(0), x_TN.stride(0), width, factor, first_row, missing),
            HAS_ROWS=rows_T is not None,
            BLOCK=_BLOCK,
        )


@triton.jit(do_not_specialize=["num_x_rows", "first_row"])
def _move(
    out, x, rows, num_x_rows, out_stride, x_stride, width, factor, first_row, missing,
    HAS_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    to_row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = to_row
    if HAS_ROWS:
        row = tl.load(rows + to_row).to(tl.int64) - first_row
    is_there = (row >= 0) & (row < num_x_rows)
    num_there = tl.where(is_there, width, 0)
    found = tl.load(x + row * x_stride + n, mask=n < num_there, other=0.0)
    moved = tl.where(is_there, found.to(tl.float32) * factor, missing)
    tl.store(out + to_row * out_stride + n, moved, mask=n < width)
