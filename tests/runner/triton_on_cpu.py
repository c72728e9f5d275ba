# SPDX-License-Identifier: Apache-2.0
"""Triton kernels in the place of a CPU's: a whole model's steps through them, without a GPU."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tokenlight import kernels
from tokenlight.kernels import OPS
from tokenlight.kernels.backends import load_backends


@contextmanager
def triton_serves_the_cpu() -> Iterator[None]:
    """Within, models are packed as for a GPU and bound to Triton: all ops that it has."""
    load_backends("cuda")
    pack = kernels.pack_linear

    def pack_as_for_a_gpu(*args: Any, device: str, **options: Any) -> Any:
        return pack(*args, device="cuda", **options)

    with ExitStack() as stack:
        stack.enter_context(patch.object(kernels, "pack_linear", pack_as_for_a_gpu))
        for op in OPS.values():
            serving = [
                dataclasses.replace(i, device="cpu", needs=frozenset(), rank=i.rank + 1000)
                if i.backend.startswith("triton")
                else i
                for i in op.implementations
            ]
            stack.enter_context(patch.object(op, "implementations", serving))
            stack.enter_context(patch.object(op, "_bound", {}))
        yield
