# SPDX-License-Identifier: Apache-2.0
"""Experts in Triton: pairs of a token and an expert, together by expert, so that a tile has one.

A pair's sums are those of a row of `linear`: they do not depend on which pairs share its tile. The
answers are added by choice, in their order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.linear.triton import WIDE, Tile, load_rows
from tokenlight.kernels.ops.moe.contract import moe
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.math import sigmoid
from tokenlight.kernels.triton.paged import find_owner

_TILE = Tile(64, 64, 64, 4, 4)
_OWNERS = tl.constexpr(128)
_SUM_BLOCK = 1024


@moe.implement("triton", device="cuda", dtypes=FLOATS, stored=FLOATS, formats=DENSE, rank=PORTABLE)
def run(
    x_TD: Tensor,
    experts_TA: Tensor,
    weights_TA: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    format: Format,
    down_format: Format,
    first_expert: int = 0,
    limit: float = 0.0,
    alpha: float = 1.0,
    shift: float = 0.0,
) -> Tensor:
    num_tokens, width = x_TD.shape
    num_experts, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out_TD = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    num_pairs, choices = experts_TA.numel(), experts_TA.shape[1]
    if not num_tokens:
        return out_TD
    if not down_format.is_dense:
        # Loading leaves none such on a GPU (`kernels.pack_linear`).
        down = torch.stack([dequantize(expert, down_format) for expert in down])
    local_P, by_expert = _by_expert(experts_TA, first_expert, num_experts)
    is_short = x_TD.dtype is not torch.float32 and x_TD.dtype is gate_up.dtype is down.dtype
    tile = _TILE if is_short else WIDE
    row_tiles = min(num_pairs, triton.cdiv(num_pairs, tile.m) + num_experts)
    inner_PF = x_TD.new_empty(num_pairs, inner)
    _open[(row_tiles, triton.cdiv(inner, tile.n))](
        *(inner_PF, x_TD, gate_up, x_TD if gate_up_bias is None else gate_up_bias, *by_expert),
        *(num_experts, inner, width, x_TD.stride(0), choices, limit, alpha, shift),
        HAS_BIAS=gate_up_bias is not None,
        HAS_LIMIT=limit != 0,
        IS_EVEN=width % tile.k == 0,
        **tile.constants(),
    )
    answers_PD = torch.empty(num_pairs, width, dtype=torch.float32, device=x_TD.device)
    _close[(row_tiles, triton.cdiv(width, tile.n))](
        *(answers_PD, inner_PF, down, x_TD if down_bias is None else down_bias, *by_expert),
        *(weights_TA.contiguous(), num_experts, width, inner),
        HAS_BIAS=down_bias is not None,
        IS_EVEN=inner % tile.k == 0,
        **tile.constants(),
    )
    _add_up[(num_tokens, triton.cdiv(width, _SUM_BLOCK))](
        *(out_TD, answers_PD, local_P, width, num_experts, choices), BLOCK=_SUM_BLOCK
    )
    return out_TD


def _by_expert(
    experts_TA: Tensor, first_expert: int, num_experts: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Each pair's expert, counted from the first here; and where each one's pairs start, in order.

    The pairs of experts that are not here have the number `num_experts`, and come last.
    """
    local_P = experts_TA.flatten() - first_expert
    is_here_P = (local_P >= 0) & (local_P < num_experts)
    local_P = torch.where(is_here_P, local_P, num_experts)
    sorted_P, order_P = local_P.sort(stable=True)
    numbers = torch.arange(num_experts + 1, dtype=local_P.dtype, device=local_P.device)
    starts = torch.searchsorted(sorted_P, numbers, out_int32=True)
    return local_P, (starts, order_P.int())


@triton.jit
def _pairs_of(starts, order, num_experts, M: tl.constexpr):
    """The expert of this program's tile, its pairs, and which of them exist."""
    tile = tl.program_id(0)
    expert, first_tile = find_owner(starts, num_experts, tile, M, _OWNERS)
    is_expert = expert < num_experts
    row_M = (
        tl.load(starts + expert, mask=is_expert, other=0)
        + (tile - first_tile) * M
        + tl.arange(0, M)
    )
    is_row_M = row_M < tl.load(starts + expert + 1, mask=is_expert, other=0)
    return expert, tl.load(order + row_M, mask=is_row_M, other=0), is_row_M


@triton.jit
def _open(
    out, x, gate_up, bias, starts, order, num_experts, inner, width, x_stride, choices,
    limit, alpha, shift,
    HAS_BIAS: tl.constexpr, HAS_LIMIT: tl.constexpr, IS_EVEN: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    expert, pair_M, is_row_M = _pairs_of(starts, order, num_experts, M)
    if expert >= num_experts:
        return
    feature_N = tl.program_id(1) * N + tl.arange(0, N)
    is_feature_N = feature_N < inner
    gates = gate_up + expert.to(tl.int64) * 2 * inner * width
    ups = gates + inner.to(tl.int64) * width
    gate_MN = tl.zeros([M, N], tl.float32)
    up_MN = tl.zeros([M, N], tl.float32)
    for base in range(0, width, K):
        x_MK = load_rows(x, pair_M // choices, x_stride, base, width, is_row_M, IS_EVEN, K)
        g_NK = load_rows(gates, feature_N, width, base, width, is_feature_N, IS_EVEN, K)
        u_NK = load_rows(ups, feature_N, width, base, width, is_feature_N, IS_EVEN, K)
        if IS_WIDE:
            x_MK, g_NK, u_NK = x_MK.to(tl.float32), g_NK.to(tl.float32), u_NK.to(tl.float32)
        gate_MN = tl.dot(x_MK, tl.trans(g_NK), gate_MN, input_precision="ieee")
        up_MN = tl.dot(x_MK, tl.trans(u_NK), up_MN, input_precision="ieee")
    if HAS_BIAS:
        here = bias + expert * 2 * inner + feature_N
        gate_MN += tl.load(here, mask=is_feature_N, other=0.0)[None, :]
        up_MN += tl.load(here + inner, mask=is_feature_N, other=0.0)[None, :]
    if HAS_LIMIT:
        gate_MN = tl.minimum(gate_MN, limit)
        up_MN = tl.minimum(tl.maximum(up_MN, -limit), limit)
    opened_MN = gate_MN * sigmoid(alpha * gate_MN) * (up_MN + shift)
    place_MN = pair_M.to(tl.int64)[:, None] * inner + feature_N[None, :]
    tl.store(out + place_MN, opened_MN, mask=is_row_M[:, None] & is_feature_N[None, :])


@triton.jit
def _close(
    out, x, down, bias, starts, order, weights, num_experts, width, inner,
    HAS_BIAS: tl.constexpr, IS_EVEN: tl.constexpr, IS_WIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    expert, pair_M, is_row_M = _pairs_of(starts, order, num_experts, M)
    if expert >= num_experts:
        return
    feature_N = tl.program_id(1) * N + tl.arange(0, N)
    is_feature_N = feature_N < width
    down += expert.to(tl.int64) * width * inner
    acc_MN = tl.zeros([M, N], tl.float32)
    for base in range(0, inner, K):
        x_MK = load_rows(x, pair_M, inner, base, inner, is_row_M, IS_EVEN, K)
        d_NK = load_rows(down, feature_N, inner, base, inner, is_feature_N, IS_EVEN, K)
        if IS_WIDE:
            x_MK, d_NK = x_MK.to(tl.float32), d_NK.to(tl.float32)
        acc_MN = tl.dot(x_MK, tl.trans(d_NK), acc_MN, input_precision="ieee")
    if HAS_BIAS:
        here = bias + expert * width + feature_N
        acc_MN += tl.load(here, mask=is_feature_N, other=0.0)[None, :]
    weight_M = tl.load(weights + pair_M, mask=is_row_M, other=0.0)
    place_MN = pair_M.to(tl.int64)[:, None] * width + feature_N[None, :]
    is_here_MN = is_row_M[:, None] & is_feature_N[None, :]
    tl.store(out + place_MN, acc_MN * weight_M[:, None], mask=is_here_MN)


@triton.jit
def _add_up(out, answers, local, width, num_experts, choices, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for choice in range(choices):
        pair = token * choices + choice
        num_there = tl.where(tl.load(local + pair) < num_experts, width, 0)
        total += tl.load(answers + pair * width + d, mask=d < num_there, other=0.0)
    tl.store(out + token * width + d, total, mask=d < width)
