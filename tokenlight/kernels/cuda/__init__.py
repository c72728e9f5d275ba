# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ as text beside the op that it serves: compiled, kept, loaded and launched from here.

Nothing of CUDA is imported before a kernel is launched, so that the ops' `cuda.py` can be imported,
explained and compiled for anywhere.
"""

from tokenlight.kernels.cuda.boxes import BoxMap, box_map
from tokenlight.kernels.cuda.launch import Kernel, Source, num_multiprocessors, workspace
from tokenlight.kernels.cuda.portable import portable

__all__ = [
    "BoxMap",
    "Kernel",
    "Source",
    "box_map",
    "num_multiprocessors",
    "portable",
    "workspace",
]
