# SPDX-License-Identifier: Apache-2.0
"""A branch in shares, added to its residual and normalised: of one share, or of several ranks'."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.triton.launch import num_warps
from tokenlight.kernels.triton.math import normalize


def add_and_norm(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """What is normalised, and the sum: both like the residual, contiguous."""
    sum_TD = torch.empty_like(residual_TD, memory_format=torch.contiguous_format)
    out_TD = torch.empty_like(sum_TD)
    num_tokens, width = residual_TD.shape
    if num_tokens:
        block = triton.next_power_of_2(width)
        _rows[(num_tokens,)](
            *(out_TD, sum_TD, shares_TN, residual_TD, weight_D),
            *(shares_TN.stride(0), residual_TD.stride(0), width, eps),
            NUM_SHARES=shares_TN.shape[1] // width,
            BLOCK=block,
            num_warps=num_warps(block),
        )
    return out_TD, sum_TD


@triton.jit
def _rows(
    out,
    total,
    shares,
    residual,
    weight,
    shares_stride,
    residual_stride,
    width,
    eps,
    NUM_SHARES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each sum is rounded to the dtype, as those of separate calls are."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    inside = d < width
    first = shares + row * shares_stride + d
    summed = tl.load(first, mask=inside, other=0.0)
    for share in tl.static_range(1, NUM_SHARES):
        more = tl.load(first + share * width, mask=inside, other=0.0).to(tl.float32)
        summed = (summed.to(tl.float32) + more).to(total.dtype.element_ty)
    before = tl.load(residual + row * residual_stride + d, mask=inside, other=0.0)
    summed = (before.to(tl.float32) + summed.to(tl.float32)).to(total.dtype.element_ty)
    tl.store(total + row * width + d, summed, mask=inside)
    gain = tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    normal = normalize(summed.to(tl.float32), gain, width, eps)
    tl.store(out + row * width + d, normal, mask=inside)
