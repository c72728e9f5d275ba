# SPDX-License-Identifier: Apache-2.0
"""Time of each op's implementations, beside what this machine reads and multiplies in this run.

python benchmarks/kernels.py [--op NAME] [--threads N] [--case TEXT]
"""

import argparse
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch

from tokenlight.kernels import OPS, _cpu, set_num_threads
from tokenlight.kernels.case import Case
from tokenlight.kernels.contract import Implementation, Op


class Peaks(NamedTuple):
    """Of this machine, now."""

    read_bytes_per_s: float
    float_ops_per_s: float
    int_ops_per_s: float


def best_s(call: Callable[[], object], *, budget_s: float = 0.3) -> float:
    """The shortest of the calls that fit the budget, at least five; the first is not counted."""
    call()
    times: list[float] = []
    while sum(times) < budget_s or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_peaks() -> Peaks:
    memory = torch.ones(256 << 20, dtype=torch.uint8)
    read_s = best_s(lambda: _cpu.probe_read(memory.data_ptr(), memory.numel()))
    pieces = 200
    float_s = best_s(lambda: _cpu.probe_multiply(pieces, False))
    int_s = best_s(lambda: _cpu.probe_multiply(pieces, True))
    return Peaks(
        memory.numel() / read_s,
        _cpu.probe_multiply(pieces, False) / float_s,
        _cpu.probe_multiply(pieces, True) / int_s,
    )


def line(
    op: Op[..., Any], implementation: Implementation[..., Any], case: Case, peaks: Peaks
) -> str:
    args = [a.clone() if i in op.mutates else a for i, a in enumerate(case.args)]
    seconds = best_s(lambda: implementation.run(*args, **case.kwargs))
    read, computed = case.num_bytes / seconds, case.num_flops / seconds
    is_int = op.name == "linear" and not case.kwargs["format"].is_dense
    peak = peaks.int_ops_per_s if is_int else peaks.float_ops_per_s
    return (
        f"{op.name:16} {implementation.backend:10} {case.name:38} {seconds * 1e6:10.1f} us "
        f"{read / 1e9:7.1f} GB/s ({read / peaks.read_bytes_per_s:4.0%}) "
        f"{computed / 1e9:7.1f} GOP/s ({computed / peak:4.0%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=sorted(OPS))
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--reference", action="store_true", help="the references as well")
    args = parser.parse_args()
    if args.threads:
        set_num_threads(args.threads)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    peaks = measure_peaks()
    print(
        f"commit {commit.stdout.strip()}, {_cpu.num_threads()} threads, {_cpu.features()[-1]}: "
        f"reads {peaks.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"float {peaks.float_ops_per_s / 1e9:.0f} GFLOP/s, "
        f"int8 {peaks.int_ops_per_s / 1e9:.0f} GOP/s"
    )
    for op in [OPS[args.op]] if args.op else OPS.values():
        benches = import_module(op.contract.__module__.replace(".contract", ".cases")).benches
        for case in benches("cpu"):
            if args.case not in case.name:
                continue
            site = op.site(*case.args, **case.kwargs)
            for implementation in op.implementations:
                wanted = args.reference or implementation.backend != "reference"
                if wanted and implementation.why_not(site) is None:
                    print(line(op, implementation, case, peaks), flush=True)


if __name__ == "__main__":
    main()
