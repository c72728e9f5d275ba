# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.ops.rms_norm.contract import rms_norm


@rms_norm.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    width = x_TD.shape[-1]
    if weight_D.shape != (width,) or weight_D.dtype != torch.float32:
        raise ValueError(
            f"rows of {width} want a float32 gain of {width}, "
            f"got {weight_D.dtype} {list(weight_D.shape)}"
        )
    # Heads of a view into a fused projection are read in place.
    rows = x_TD if x_TD.dim() in (2, 3) else x_TD.reshape(-1, width)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    out = torch.empty(x_TD.shape)
    num_inner, inner_stride = (rows.shape[1], rows.stride(1)) if rows.dim() == 3 else (1, 0)
    _cpu.rms_norm(
        out.data_ptr(),
        rows.data_ptr(),
        weight_D.contiguous().data_ptr(),
        rows.shape[0],
        num_inner,
        width,
        rows.stride(0),
        inner_stride,
        eps,
    )
    return out
