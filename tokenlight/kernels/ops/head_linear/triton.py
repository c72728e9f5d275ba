# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.ops.head_linear.contract import head_linear
from tokenlight.kernels.ops.linear.triton import choose_tile, load_rows, tile_of
from tokenlight.kernels.triton.launch import FLOATS


@head_linear.implement(
    "triton", device="cuda", dtypes=FLOATS, stored=FLOATS, formats=DENSE, rank=PORTABLE
)
def run(x_THK: Tensor, weight: Tensor, *, format: Format) -> Tensor:
    num_rows, num_heads, k = x_THK.shape
    n = weight.shape[1]
    y_THN = x_THK.new_empty(num_rows, num_heads, n)
    if num_rows:
        tile = choose_tile(num_rows, x_THK.dtype, weight.dtype)
        tiles = triton.cdiv(num_rows, tile.m) * triton.cdiv(n, tile.n)
        _multiply[(tiles, num_heads)](
            *(y_THN, x_THK, weight, num_rows, n, k, x_THK.stride(0), num_heads * n),
            IS_EVEN=k % tile.k == 0,
            **tile.constants(),
        )
    return y_THN


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    y, x, weight, num_rows, n, k, x_stride, y_stride,
    IS_EVEN: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row_M, feature_N = tile_of(tl.program_id(0), num_rows, n, M, N)
    is_row_M, is_feature_N = row_M < num_rows, feature_N < n
    x += head * k
    weight += head.to(tl.int64) * n * k
    acc_MN = tl.zeros([M, N], tl.float32)
    for base in range(0, k, K):
        x_MK = load_rows(x, row_M, x_stride, base, k, is_row_M, IS_EVEN, K)
        w_NK = load_rows(weight, feature_N, k, base, k, is_feature_N, IS_EVEN, K)
        if IS_WIDE:
            x_MK, w_NK = x_MK.to(tl.float32), w_NK.to(tl.float32)
        acc_MN = tl.dot(x_MK, tl.trans(w_NK), acc_MN, input_precision="ieee")
    place_MN = row_M.to(tl.int64)[:, None] * y_stride + head * n + feature_N[None, :]
    tl.store(y + place_MN, acc_MN, mask=is_row_M[:, None] & is_feature_N[None, :])
