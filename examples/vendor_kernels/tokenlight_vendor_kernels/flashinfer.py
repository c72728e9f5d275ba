# SPDX-License-Identifier: Apache-2.0
"""`rms_norm` and `silu_mul` by FlashInfer. Its attention plans each step on the host: not taken."""

import torch
from flashinfer.activation import silu_and_mul
from flashinfer.norm import rmsnorm
from torch import Tensor

from tokenlight import kernels
from tokenlight_vendor_kernels import RANK

HALVES = {torch.float16, torch.bfloat16}


def register() -> None:
    """What the entry point names. A row is summed by a block of its own: no company, no order."""
    kernels.rms_norm.implement("flashinfer", device="cuda", dtypes=HALVES, rank=RANK)(norm)
    kernels.silu_mul.implement("flashinfer", device="cuda", dtypes=HALVES, rank=RANK)(silu)


def norm(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    """Keep the contract: `kernels.rms_norm`'s docstring."""
    if not x_TD.numel():
        return torch.empty_like(x_TD, memory_format=torch.contiguous_format)
    rows = x_TD.reshape(-1, x_TD.shape[-1])
    normed: Tensor = rmsnorm(rows, weight_D, eps=eps)
    return normed.view(x_TD.shape)


def silu(gate_up_T2F: Tensor) -> Tensor:
    """Keep the contract: `kernels.silu_mul`'s docstring."""
    if not gate_up_T2F.numel():
        return gate_up_T2F.new_empty(len(gate_up_T2F), gate_up_T2F.shape[1] // 2)
    opened_TF: Tensor = silu_and_mul(gate_up_T2F.contiguous())
    return opened_TF
