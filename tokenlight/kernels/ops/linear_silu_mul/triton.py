# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.ops.linear.triton import WIDE, choose_tile, load_rows, tile_of
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.math import gate


@linear_silu_mul.implement(
    "triton", device="cuda", dtypes=FLOATS, stored=FLOATS, formats=DENSE, rank=PORTABLE
)
def run(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    num_rows, k = x_TK.shape
    width = weight.shape[0] // 2
    if weight.shape[1] != k or not weight.is_contiguous():
        raise ValueError(f"a {format} weight of {list(weight.shape)} does not take {k} features")
    if x_TK.stride(1) != 1:
        x_TK = x_TK.contiguous()
    y_TF = x_TK.new_empty(num_rows, width)
    if num_rows and width:
        tile = choose_tile(num_rows, x_TK.dtype, weight.dtype)
        features = max(tile.n // 2, 32)
        _multiply[(triton.cdiv(num_rows, tile.m) * triton.cdiv(width, features),)](
            *(y_TF, x_TK, weight, y_TF if bias_N is None else bias_N),
            *(num_rows, width, k, x_TK.stride(0)),
            HAS_BIAS=bias_N is not None,
            IS_EVEN=k % tile.k == 0,
            IS_WIDE=tile is WIDE,
            M=tile.m,
            F=features,
            K=tile.k,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )
    return y_TF


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    y, x, weight, bias, num_rows, width, k, x_stride,
    HAS_BIAS: tl.constexpr, IS_EVEN: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, F: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row_M, feature_F = tile_of(tl.program_id(0), num_rows, width, M, F)
    is_row_M, is_feature_F = row_M < num_rows, feature_F < width
    gate_MF = tl.zeros([M, F], tl.float32)
    up_MF = tl.zeros([M, F], tl.float32)
    ups = weight + width.to(tl.int64) * k
    for base in range(0, k, K):
        x_MK = load_rows(x, row_M, x_stride, base, k, is_row_M, IS_EVEN, K)
        g_FK = load_rows(weight, feature_F, k, base, k, is_feature_F, IS_EVEN, K)
        u_FK = load_rows(ups, feature_F, k, base, k, is_feature_F, IS_EVEN, K)
        if IS_WIDE:
            x_MK, g_FK, u_FK = x_MK.to(tl.float32), g_FK.to(tl.float32), u_FK.to(tl.float32)
        gate_MF = tl.dot(x_MK, tl.trans(g_FK), gate_MF, input_precision="ieee")
        up_MF = tl.dot(x_MK, tl.trans(u_FK), up_MF, input_precision="ieee")
    if HAS_BIAS:
        gate_MF += tl.load(bias + feature_F, mask=is_feature_F, other=0.0).to(tl.float32)[None, :]
        up_MF += tl.load(bias + width + feature_F, mask=is_feature_F, other=0.0).to(tl.float32)[
            None, :
        ]
    place_MF = row_M.to(tl.int64)[:, None] * width + feature_F[None, :]
    opened_MF = gate(gate_MF, "silu") * up_MF
    tl.store(y + place_MF, opened_MF, mask=is_row_M[:, None] & is_feature_F[None, :])
