# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.rms_norm.contract import rms_norm
from tokenlight.kernels.triton.launch import FLOATS, num_warps
from tokenlight.kernels.triton.math import normalize


@rms_norm.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    width = x_TD.shape[-1]
    rows = x_TD if x_TD.dim() in (2, 3) and x_TD.stride(-1) == 1 else x_TD.reshape(-1, width)
    num_inner = rows.shape[1] if rows.dim() == 3 else 1
    out = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    num_rows = rows.shape[0] * num_inner
    if num_rows:
        block = triton.next_power_of_2(width)
        _rows[(num_rows,)](
            *(out, rows, weight_D, num_inner, rows.stride(0), rows.stride(-2), width, eps),
            BLOCK=block,
            num_warps=num_warps(block),
        )
    return out


@triton.jit
def _rows(
    out, x, weight, num_inner, outer_stride, inner_stride, width, eps, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    inside = d < width
    start = row // num_inner * outer_stride + row % num_inner * inner_stride
    wide = tl.load(x + start + d, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + d, normalize(wide, gain, width, eps), mask=inside)
