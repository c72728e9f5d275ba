# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm
from tokenlight.kernels.triton.launch import FLOATS, num_warps
from tokenlight.kernels.triton.math import normalize


@add_rms_norm.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    sum_TD = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    out_TD = torch.empty_like(sum_TD)
    num_tokens, width = x_TD.shape
    if num_tokens:
        block = triton.next_power_of_2(width)
        _rows[(num_tokens,)](
            *(out_TD, sum_TD, x_TD, residual_TD, weight_D),
            *(x_TD.stride(0), residual_TD.stride(0), width, eps),
            BLOCK=block,
            num_warps=num_warps(block),
        )
    return out_TD, sum_TD


@triton.jit
def _rows(
    out, total, x, residual, weight, x_stride, residual_stride, width, eps, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    inside = d < width
    a = tl.load(x + row * x_stride + d, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(residual + row * residual_stride + d, mask=inside, other=0.0).to(tl.float32)
    rounded = (a + b).to(total.dtype.element_ty)
    tl.store(total + row * width + d, rounded, mask=inside)
    gain = tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    normal = normalize(rounded.to(tl.float32), gain, width, eps)
    tl.store(out + row * width + d, normal, mask=inside)
