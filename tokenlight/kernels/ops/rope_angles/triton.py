# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.rope_angles.contract import rope_angles


@rope_angles.implement("triton", device="cuda", rank=PORTABLE)
def run(positions_T: Tensor, frequencies: Tensor, *, magnitude: float) -> Tensor:
    half = len(frequencies)
    cos_sin_Tr = frequencies.new_empty(len(positions_T), 2 * half)
    if len(positions_T):
        _angles[(len(positions_T),)](
            *(cos_sin_Tr, positions_T.contiguous(), frequencies.contiguous(), half, magnitude),
            BLOCK=triton.next_power_of_2(half),
            num_warps=1,
        )
    return cos_sin_Tr


@triton.jit
def _angles(out, positions, frequencies, half, magnitude, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    frequency = tl.load(frequencies + i, mask=i < half, other=0.0)
    angle = tl.load(positions + token).to(tl.float32) * frequency
    row = out + token * 2 * half + i
    tl.store(row, tl.cos(angle) * magnitude, mask=i < half)
    tl.store(row + half, tl.sin(angle) * magnitude, mask=i < half)
