# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.rope_angles.contract import rope_angles


@rope_angles.implement("cpu", device="cpu", dtypes={torch.int32}, rank=TUNED)
def cpu(positions_T: Tensor, frequencies: Tensor, *, magnitude: float) -> Tensor:
    if frequencies.dtype is not torch.float32 or frequencies.dim() != 1 or positions_T.dim() != 1:
        raise ValueError(
            f"want positions [T] and float32 frequencies [r / 2], got {list(positions_T.shape)} "
            f"and {frequencies.dtype} {list(frequencies.shape)}"
        )
    num_tokens, num_frequencies = positions_T.shape[0], frequencies.shape[0]
    cos_sin_Tr = torch.empty(num_tokens, 2 * num_frequencies)
    _cpu.rope_angles(
        cos_sin_Tr.data_ptr(),
        positions_T.contiguous().data_ptr(),
        frequencies.contiguous().data_ptr(),
        num_tokens,
        num_frequencies,
        magnitude,
    )
    return cos_sin_Tr


@rope_angles.enter("cpu")
def entry(call: NativeCall) -> bool:
    positions, frequencies, out = call.operand(0), call.operand(1), call.outputs[0]
    if positions.strides != (1,) or frequencies.strides != (1,):
        return False
    call.program.rope_angles(
        out.place,
        positions.place,
        frequencies.place,
        out.rows,
        frequencies.num_rows,
        call.options["magnitude"],
    )
    return True
