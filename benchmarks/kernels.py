# SPDX-License-Identifier: Apache-2.0
"""Time of each op's kernels: beside the reference, the roofline of this run, and the kept baseline.

python -m benchmarks.kernels [--op NAME] [--case TEXT] [--device cpu|cuda] [--threads N] [--keep]

The roofline is the larger of the least bytes over the bandwidth, and the least operations over the
peak, both measured in this run: a machine that is slower today lowers both. Cases that caches hold
are not set against the memory's bandwidth. `--keep` stores what is measured as the baseline of this
machine, beside which later runs are printed.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tokenlight.kernels import OPS, _cpu, set_num_threads
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.case import Case
from tokenlight.kernels.contract import REFERENCE, Implementation, Op
from tokenlight.kernels.machine import default_device
from tokenlight.kernels.tuning import benches_of, best_s, machine_facts, measure

BASELINES = Path(__file__).with_name("kernels_baseline.json")
# Calls repeat on the same operands: smaller ones stay in a cache.
CACHED_BYTES = 32 << 20
# A reference that would take longer than about this is left out.
REFERENCE_FLOPS = 4e9


class Peaks(NamedTuple):
    """Of this machine, now."""

    bytes_per_s: float
    float_ops_per_s: float
    int_ops_per_s: float

    def __str__(self) -> str:
        return (
            f"reads {self.bytes_per_s / 1e9:.1f} GB/s, "
            f"float {self.float_ops_per_s / 1e9:.0f} GFLOP/s, "
            f"int8 {self.int_ops_per_s / 1e9:.0f} GOP/s"
        )


class Measured(NamedTuple):
    """One implementation on one case."""

    op: str
    backend: str
    case: str
    seconds: float
    share: float
    """Of the roofline; 0 where it says nothing."""
    over_reference: float | None

    @property
    def key(self) -> str:
        return f"{self.op} {self.backend} {self.case}"

    def line(self, kept: dict[str, float] | None) -> str:
        told = [f"{self.op:16} {self.backend:10} {self.case:38} {self.seconds * 1e6:10.1f} us"]
        told.append(f"{self.share:5.0%} of roofline" if self.share else " " * 17)
        if kept is not None:
            of_roofline = f", {kept['share']:.0%}" if kept["share"] else ""
            told.append(f"(baseline {kept['us']:.1f} us{of_roofline})")
        if self.over_reference is not None:
            told.append(f"x{self.over_reference:.1f} of reference")
        return " ".join(told).rstrip()


def measure_peaks(device: str) -> Peaks:
    if device == "cuda":
        return _cuda_peaks()
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


def _cuda_peaks() -> Peaks:
    """A copy counts what is read and what is written; products are of bfloat16."""
    source = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    copy_s = best_s(source.clone, device="cuda")
    square = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    product_s = best_s(lambda: square @ square, device="cuda")
    flops = 2 * 8192**3 / product_s
    return Peaks(2 * source.numel() / copy_s, flops, flops)


def roofline_s(op: Op[..., Any], case: Case, peaks: Peaks) -> float:
    """The least time of a case; 0 where a cache makes it less than the memory would."""
    is_int = op.takes_format and not case.kwargs["format"].is_dense
    computed_s = case.num_flops / (peaks.int_ops_per_s if is_int else peaks.float_ops_per_s)
    moved_s = case.num_bytes / peaks.bytes_per_s
    is_cached = moved_s > computed_s and case.num_bytes < CACHED_BYTES
    return 0.0 if is_cached else max(moved_s, computed_s)


def measured(op: Op[..., Any], case: Case, peaks: Peaks) -> Iterator[Measured]:
    site = op.site(*case.args, **case.kwargs)
    able = [i for i in op.implementations if i.why_not(site) is None]
    references = [i for i in able if i.rank == REFERENCE]
    reference_s = (
        measure(op, references[0], case)
        if references and case.num_flops <= REFERENCE_FLOPS
        else None
    )
    for implementation in able:
        if implementation.rank > REFERENCE:
            yield _beside(op, implementation, case, peaks, reference_s)


def _beside(
    op: Op[..., Any],
    implementation: Implementation[..., Any],
    case: Case,
    peaks: Peaks,
    reference_s: float | None,
) -> Measured:
    seconds = measure(op, implementation, case)
    return Measured(
        op=op.name,
        backend=implementation.backend,
        case=case.name,
        seconds=seconds,
        share=roofline_s(op, case, peaks) / seconds,
        over_reference=None if reference_s is None else reference_s / seconds,
    )


Baselines = dict[str, dict[str, dict[str, float]]]  # machine -> key -> share and microseconds


def load_baselines(path: Path = BASELINES) -> Baselines:
    return json.loads(path.read_text()) if path.exists() else {}


def keep(machine: str, found: list[Measured], path: Path = BASELINES) -> None:
    baselines = load_baselines(path)
    baselines[machine] = baselines.get(machine, {}) | {
        m.key: {"share": round(m.share, 4), "us": round(m.seconds * 1e6, 2)} for m in found
    }
    path.write_text(json.dumps(baselines, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=sorted(OPS))
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default_device())
    parser.add_argument("--threads", type=int)
    parser.add_argument("--keep", action="store_true", help="store the shares as the baseline")
    args = parser.parse_args()
    if args.threads:
        set_num_threads(args.threads)
    load_backends(args.device)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    peaks = measure_peaks(args.device)
    machine = machine_facts(args.device)[0]
    print(f"commit {commit.stdout.strip()}, {machine}: {peaks}")
    kept = load_baselines().get(machine, {})
    found = []
    for op in [OPS[args.op]] if args.op else OPS.values():
        for case in benches_of(op, args.device):
            if args.case in case.name:
                for one in measured(op, case, peaks):
                    print(one.line(kept.get(one.key)), flush=True)
                    found.append(one)
    if args.keep:
        keep(machine, found)


if __name__ == "__main__":
    main()
