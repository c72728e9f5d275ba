# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled while weights are read, and what compiling them cost."""

from importlib import import_module

from tokenlight.kernels.cuda.ahead import CUBINS
from tokenlight.kernels.cuda.launch import compile_ahead as compile_cubins_ahead
from tokenlight.kernels.machine import features, has_triton
from tokenlight.kernels.ops import OPS


def compile_ahead(device: str) -> None:
    """Begin to compile the tuned kernels, in threads; from now on Triton's are counted."""
    if device != "cuda":
        return
    if has_triton():
        import_module("tokenlight.kernels.triton.compiled").watch()
    tuned = [i for op in OPS.values() for i in op.implementations if i.backend == "cuda"]
    if any(i.needs <= features(device) for i in tuned):
        compile_cubins_ahead()


def compile_costs() -> dict[str, float]:
    """For a log line: seconds of each source's thread, of waiting for them, and Triton's."""
    costs = {f"nvrtc_{name}_s": seconds for name, seconds in sorted(CUBINS.seconds.items())}
    costs["nvrtc_waited_s"] = CUBINS.waited_s
    if has_triton():
        counted = import_module("tokenlight.kernels.triton.compiled").COMPILED
        costs |= {
            "triton_compiled": counted.num_compiled,
            "triton_found": counted.num_found,
            "triton_s": counted.seconds,
        }
    return costs
