# SPDX-License-Identifier: Apache-2.0
"""Dense matrix product in Triton, for any number of rows.

Row-invariant: each result is one sum over K in steps of 16 within one program, whatever the tile.
All tiles of 16-bit types have at least the 64 rows of a Hopper matrix instruction, so that one row
and a thousand are added by the same instruction. cuBLAS would choose a kernel by the number of
rows, and another kernel adds in another order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.ops.linear.contract import linear
from tokenlight.kernels.triton.launch import FLOATS


class Tile(NamedTuple):
    """M rows x N features of the result per program, K weights at a time."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int

    def constants(self) -> dict[str, int | bool]:
        """What kernels are compiled for."""
        sizes = {"M": self.m, "N": self.n, "K": self.k, "IS_WIDE": self == WIDE}
        return {**sizes, "num_warps": self.num_warps, "num_stages": self.num_stages}


# Products of float32 on the plain units; operands of two types meet there as well.
WIDE = Tile(32, 32, 32, 4, 1)
# All take as many weights at a time, so that they add alike.
_FEW_ROWS = Tile(64, 32, 64, 4, 6)
_SOME_ROWS = Tile(64, 128, 64, 4, 4)
_MANY_ROWS = Tile(128, 256, 64, 8, 3)


def choose_tile(num_rows: int, dtype: torch.dtype, stored: torch.dtype) -> Tile:
    """By the rows alone; what a row gets does not depend on it."""
    if dtype is torch.float32 or stored is not dtype:
        return WIDE
    if num_rows <= 64:
        return _FEW_ROWS
    return _SOME_ROWS if num_rows <= 512 else _MANY_ROWS


@linear.implement(
    "triton", device="cuda", dtypes=FLOATS, stored=FLOATS, formats=DENSE, rank=PORTABLE
)
def run(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    num_rows, k = x_TK.shape
    n = weight.shape[0]
    if weight.shape[1] != k or not weight.is_contiguous():
        raise ValueError(f"a {format} weight of {list(weight.shape)} does not take {k} features")
    if x_TK.stride(1) != 1:
        x_TK = x_TK.contiguous()
    y_TN = torch.empty(num_rows, n, dtype=x_TK.dtype, device=x_TK.device)
    if num_rows and n:
        tile = choose_tile(num_rows, x_TK.dtype, weight.dtype)
        _multiply[(triton.cdiv(num_rows, tile.m) * triton.cdiv(n, tile.n),)](
            *(y_TN, x_TK, weight, y_TN if bias_N is None else bias_N),
            *(num_rows, n, k, x_TK.stride(0)),
            HAS_BIAS=bias_N is not None,
            IS_EVEN=k % tile.k == 0,
            **tile.constants(),
        )
    return y_TN


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    y, x, weight, bias, num_rows, n, k, x_stride,
    HAS_BIAS: tl.constexpr, IS_EVEN: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row_M, feature_N = tile_of(tl.program_id(0), num_rows, n, M, N)
    is_row_M, is_feature_N = row_M < num_rows, feature_N < n
    acc_MN = tl.zeros([M, N], tl.float32)
    for base in range(0, k, K):
        x_MK = load_rows(x, row_M, x_stride, base, k, is_row_M, IS_EVEN, K)
        w_NK = load_rows(weight, feature_N, k, base, k, is_feature_N, IS_EVEN, K)
        if IS_WIDE:
            x_MK, w_NK = x_MK.to(tl.float32), w_NK.to(tl.float32)
        acc_MN = tl.dot(x_MK, tl.trans(w_NK), acc_MN, input_precision="ieee")
    if HAS_BIAS:
        bias_N = tl.load(bias + feature_N, mask=is_feature_N, other=0.0).to(tl.float32)
        acc_MN += bias_N[None, :]
    place_MN = row_M.to(tl.int64)[:, None] * n + feature_N[None, :]
    tl.store(y + place_MN, acc_MN, mask=is_row_M[:, None] & is_feature_N[None, :])


@triton.jit
def tile_of(program, num_rows, n, M: tl.constexpr, N: tl.constexpr):
    """Rows and features of a program. Eight tiles of rows share a pass over the weights' tiles."""
    row_tiles, feature_tiles = tl.cdiv(num_rows, M), tl.cdiv(n, N)
    together = 8 * feature_tiles
    first = program // together * 8
    height = tl.minimum(row_tiles - first, 8)
    row_tile = first + program % together % height
    return (
        row_tile * M + tl.arange(0, M),
        program % together // height * N + tl.arange(0, N),
    )


@triton.jit
def load_rows(x, row, stride, base, k, is_row, IS_EVEN: tl.constexpr, K: tl.constexpr):
    """K columns from `base` on of some rows of a matrix of k columns; 0 beyond it."""
    column = base + tl.arange(0, K)
    place = row.to(tl.int64)[:, None] * stride + column[None, :]
    if IS_EVEN:
        return tl.load(x + place, mask=is_row[:, None], other=0.0)
    return tl.load(x + place, mask=is_row[:, None] & (column < k)[None, :], other=0.0)
