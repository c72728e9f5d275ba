# SPDX-License-Identifier: Apache-2.0
"""A kernel plugin: `softcap` for float16 and bfloat16 on a CPU, in torch, in the dtype itself.

TokenLight's own CPU kernel takes float32, so this one is chosen for the 16-bit types alone, where
otherwise the reference would run.
"""

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.kernels.contract import PORTABLE


def register() -> None:
    """What the entry point names; TokenLight calls it once."""
    kernels.softcap.implement(
        "plain",
        device="cpu",
        dtypes={torch.float16, torch.bfloat16},
        rank=PORTABLE,
    )(plain)


def plain(x_TN: Tensor, *, cap: float) -> Tensor:
    """Keep the contract: `kernels.softcap`'s docstring. The tanh is computed in float32."""
    return x_TN.float().div(cap).tanh_().mul_(cap).to(x_TN.dtype)
