# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.rms_norm.contract import rms_norm


@rms_norm.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    width = x_TD.shape[-1]
    if weight_D.numel() != width or weight_D.dtype is not torch.float32:
        raise ValueError(
            f"rows of {width} want a float32 gain of {width}, "
            f"got {weight_D.dtype} {list(weight_D.shape)}"
        )
    # Heads of a view into a fused projection are read in place.
    num_dims = x_TD.dim()
    if num_dims not in (2, 3) or x_TD.stride(-1) != 1:
        rows, num_dims = x_TD.reshape(-1, width).contiguous(), 2
    else:
        rows = x_TD
    out = torch.empty(x_TD.shape)
    _cpu.rms_norm(
        out.data_ptr(),
        rows.data_ptr(),
        weight_D.contiguous().data_ptr(),
        rows.shape[0],
        rows.shape[1] if num_dims == 3 else 1,
        width,
        rows.stride(0),
        rows.stride(1) if num_dims == 3 else 0,
        eps,
    )
    return out


@rms_norm.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, weight, out = call.operand(0), call.operand(1), call.outputs[0]
    width, inner = x.shape[-1], x.shape[:-1]
    if x.strides[-1] != 1 or len(inner) > 1 or weight.strides != (1,):
        return False
    call.program.rms_norm(
        out.place,
        x.place,
        weight.place,
        out.rows,
        inner[0] if inner else 1,
        width,
        x.strides[0],
        x.strides[1] if inner else 0,
        call.options["eps"],
    )
    return True
