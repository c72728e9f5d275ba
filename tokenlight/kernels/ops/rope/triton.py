# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.rope.contract import rope_
from tokenlight.kernels.triton.launch import FLOATS, check_heads
from tokenlight.kernels.triton.math import turn

_HEADS = 8


@rope_.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(q_THd: Tensor, k_TKd: Tensor, cos_sin_Tr: Tensor) -> None:
    check_heads(q_THd, k_TKd)
    num_tokens, num_heads, head_dim = q_THd.shape
    num_kv_heads, half = k_TKd.shape[1], cos_sin_Tr.shape[1] // 2
    if num_tokens:
        q_blocks, k_blocks = triton.cdiv(num_heads, _HEADS), triton.cdiv(num_kv_heads, _HEADS)
        _rotate[(num_tokens, q_blocks + k_blocks)](
            *(q_THd, k_TKd, cos_sin_Tr, num_heads, num_kv_heads, q_blocks),
            *(q_THd.stride(0), k_TKd.stride(0), head_dim, half),
            HEADS=_HEADS,
            BLOCK=triton.next_power_of_2(half),
        )


@triton.jit
def _rotate(
    q, k, cos_sin, num_heads, num_kv_heads, q_blocks, q_stride, k_stride, head_dim, half,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    if block < q_blocks:
        _rotate_heads(
            q + token * q_stride, num_heads, block * HEADS, cos_sin + token * 2 * half,
            head_dim, half, HEADS, BLOCK,
        )  # fmt: skip
    else:
        _rotate_heads(
            k + token * k_stride, num_kv_heads, (block - q_blocks) * HEADS,
            cos_sin + token * 2 * half, head_dim, half, HEADS, BLOCK,
        )  # fmt: skip


@triton.jit
def _rotate_heads(
    x, num_heads, first, cos_sin, head_dim, half, HEADS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    h = first + tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (h < num_heads) & (i < half)
    cos = tl.load(cos_sin + i, mask=i < half, other=0.0)
    sin = tl.load(cos_sin + half + i, mask=i < half, other=0.0)
    low = x + h * head_dim + i
    a = tl.load(low, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(low + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(low, turn(a, b, cos, -sin), mask=inside)
    tl.store(low + half, turn(b, a, cos, sin), mask=inside)
