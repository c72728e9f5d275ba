# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.add.contract import add
from tokenlight.kernels.triton.launch import FLOATS

_BLOCK = 1024


@add.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TD: Tensor, y_TD: Tensor) -> Tensor:
    out_TD = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    num_tokens, width = x_TD.shape
    if num_tokens:
        _rows[(num_tokens, triton.cdiv(width, _BLOCK))](
            out_TD, x_TD, y_TD, x_TD.stride(0), y_TD.stride(0), width, BLOCK=_BLOCK
        )
    return out_TD


@triton.jit
def _rows(out, x, y, x_stride, y_stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(x + row * x_stride + d, mask=d < width).to(tl.float32)
    second = tl.load(y + row * y_stride + d, mask=d < width).to(tl.float32)
    tl.store(out + row * width + d, first + second, mask=d < width)
