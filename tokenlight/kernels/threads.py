# SPDX-License-Identifier: Apache-2.0
"""How many CPU threads the kernels use, torch's own operators included."""

import torch

from tokenlight.kernels import _cpu


def set_num_threads(num_threads: int) -> None:
    """Use this many threads from the next call on; at first, one per physical core we may use."""
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    torch.set_num_threads(num_threads)
    _cpu.set_num_threads(num_threads)
