# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.silu_mul.contract import silu_mul
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.math import gate

_BLOCK = 1024


@silu_mul.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(gate_up_T2F: Tensor) -> Tensor:
    return gated(gate_up_T2F, "silu")


def gated(gate_up_T2F: Tensor, act: str) -> Tensor:
    """The activation called `act` of the first half of each row, times the second half."""
    num_tokens, both = gate_up_T2F.shape
    out_TF = torch.empty(num_tokens, both // 2, dtype=gate_up_T2F.dtype, device=gate_up_T2F.device)
    if num_tokens:
        _rows[(num_tokens, triton.cdiv(both // 2, _BLOCK))](
            out_TF, gate_up_T2F, gate_up_T2F.stride(0), both // 2, ACT=act, BLOCK=_BLOCK
        )
    return out_TF


@triton.jit
def _rows(out, gate_up, stride, width, ACT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = f < width
    start = gate_up + row * stride
    opened = gate(tl.load(start + f, mask=inside, other=0.0).to(tl.float32), ACT)
    up = tl.load(start + width + f, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + f, opened * up, mask=inside)
