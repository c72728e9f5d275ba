# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.softcap.contract import softcap
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.math import tanh

_BLOCK = 2048


@softcap.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(x_TN: Tensor, *, cap: float) -> Tensor:
    out_TN = torch.empty_like(x_TN, memory_format=torch.contiguous_format)
    num_tokens, width = x_TN.shape
    if num_tokens:
        _rows[(num_tokens, triton.cdiv(width, _BLOCK))](
            out_TN, x_TN, x_TN.stride(0), width, cap, BLOCK=_BLOCK
        )
    return out_TN


@triton.jit
def _rows(out, x, stride, width, cap, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    wide = tl.load(x + row * stride + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + n, tanh(wide / cap) * cap, mask=inside)
