# SPDX-License-Identifier: Apache-2.0
"""How many Triton kernels this process compiled, and how long it took."""

from dataclasses import dataclass
from typing import Any

import triton


@dataclass
class Compiled:
    """Told by Triton of each kernel that it compiles, or finds where an earlier process left it."""

    num_compiled: int = 0
    num_found: int = 0
    seconds: float = 0.0
    """Of compiling alone: what was found is not counted."""

    def __call__(self, *, times: Any, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            self.num_found += 1
        else:
            self.num_compiled += 1
            self.seconds += times.total / 1e6


COMPILED = Compiled()
"""This process's."""


def watch() -> None:
    """Be told from now on."""
    triton.knobs.compilation.listener = COMPILED
