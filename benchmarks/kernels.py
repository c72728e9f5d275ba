# SPDX-License-Identifier: Apache-2.0
"""Time of each op's kernels: beside the reference, the roofline of this run, and the kept baseline.

python -m benchmarks.kernels [--op NAME] [--case TEXT] [--device cpu|cuda] [--threads N] [--keep]

The roofline is the larger of the least bytes over the bandwidth, and the least operations over the
peak, both measured in this run: a machine that is slower today lowers both. The bandwidth is that
of as many bytes, read again and again as a kernel's operands are: where a cache holds those, it is
the cache's, and the cost of a call is in both. `--keep` stores what is measured as the baseline of
this machine and number of threads; later runs are printed beside it, and end with 1 and the names
of what became slower by more than `--slack`: by shares of the roofline, or by time in a cache.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tokenlight.kernels import OPS, _cpu, set_num_threads
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.case import Case
from tokenlight.kernels.contract import REFERENCE, Implementation, Op
from tokenlight.kernels.formats.scaled import FP8
from tokenlight.kernels.machine import default_device
from tokenlight.kernels.tuning import benches_of, best_s, machine_facts, measure

BASELINES = Path(__file__).with_name("kernels_baseline.json")
# Calls repeat on the same operands: fewer bytes stay in a cache.
CACHED_BYTES = 32 << 20
# What is read to learn the memory's own bandwidth.
MEMORY_BYTES = 256 << 20
# A reference that would take longer than about this is left out.
REFERENCE_FLOPS = 4e9


class Bandwidth:
    """Bytes per second by how many bytes move again and again, each measured once.

    Args:
        move_s: the time that so many bytes take.
    """

    def __init__(self, move_s: Callable[[int], float]) -> None:
        self._move_s = move_s
        self._known: dict[int, float] = {}

    def of(self, num_bytes: int) -> float:
        """Of a working set; beyond the caches all are alike."""
        size = MEMORY_BYTES if num_bytes >= CACHED_BYTES else -(-num_bytes // 4096) * 4096
        if size not in self._known:
            self._known[size] = size / self._move_s(size)
        return self._known[size]


class Peaks(NamedTuple):
    """Of this machine, now."""

    bandwidth: Bandwidth
    float_ops_per_s: float
    int_ops_per_s: float

    def __str__(self) -> str:
        return (
            f"reads {self.bandwidth.of(MEMORY_BYTES) / 1e9:.1f} GB/s, "
            f"float {self.float_ops_per_s / 1e9:.0f} GFLOP/s, "
            f"int8 {self.int_ops_per_s / 1e9:.0f} GOP/s"
        )


class Kept(NamedTuple):
    """What a baseline has of one implementation on one case."""

    share: float
    us: float


class Measured(NamedTuple):
    """One implementation on one case."""

    op: str
    backend: str
    case: str
    seconds: float
    share: float
    """Of the roofline; 0 where the case says nothing of what it must move."""
    is_cached: bool
    """Whether it says what caches give, which other processes disturb."""
    over_reference: float | None

    @property
    def key(self) -> str:
        return f"{self.op} {self.backend} {self.case}"

    def speed_over(self, kept: Kept) -> float:
        """This run's speed over the baseline's, below 1 where it is slower."""
        if self.share and kept.share and not self.is_cached:
            return self.share / kept.share
        return kept.us / (self.seconds * 1e6)

    def line(self, kept: Kept | None) -> str:
        told = [f"{self.op:16} {self.backend:10} {self.case:38} {self.seconds * 1e6:10.1f} us"]
        told.append(f"{self.share:5.0%} of roofline" if self.share else " " * 17)
        if kept is not None:
            of_roofline = f", {kept.share:.0%}" if kept.share else ""
            told.append(f"x{self.speed_over(kept):.2f} of baseline ({kept.us:.1f} us{of_roofline})")
        if self.over_reference is not None:
            told.append(f"x{self.over_reference:.1f} of reference")
        return " ".join(told).rstrip()


def measure_peaks(device: str) -> Peaks:
    if device == "cuda":
        return _cuda_peaks()
    memory = torch.ones(MEMORY_BYTES, dtype=torch.uint8)
    pieces = 200
    float_s = best_s(lambda: _cpu.probe_multiply(pieces, False))
    int_s = best_s(lambda: _cpu.probe_multiply(pieces, True))
    return Peaks(
        Bandwidth(lambda size: best_s(lambda: _cpu.probe_read(memory.data_ptr(), size))),
        _cpu.probe_multiply(pieces, False) / float_s,
        _cpu.probe_multiply(pieces, True) / int_s,
    )


def _cuda_peaks() -> Peaks:
    """A copy counts what is read and what is written; products are of bfloat16."""
    source = torch.ones(MEMORY_BYTES // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy_s(num_bytes: int) -> float:
        half = slice(num_bytes // 2)
        return best_s(lambda: target[half].copy_(source[half]), device="cuda")

    square = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    product_s = best_s(lambda: square @ square, device="cuda")
    flops = 2 * 8192**3 / product_s
    return Peaks(Bandwidth(copy_s), flops, flops)


class Roofline(NamedTuple):
    """The least time of a case, and whether it is that of bytes in a cache."""

    seconds: float
    is_cached: bool


def roofline(op: Op[..., Any], case: Case, peaks: Peaks) -> Roofline:
    """What moves or what computes, whichever takes longer."""
    weight_format = case.kwargs["format"] if op.takes_format else None
    is_int = weight_format is not None and not weight_format.is_dense and weight_format not in FP8
    computed_s = case.num_flops / (peaks.int_ops_per_s if is_int else peaks.float_ops_per_s)
    moved_s = case.num_bytes / peaks.bandwidth.of(case.num_bytes) if case.num_bytes else 0.0
    is_cached = moved_s > computed_s and case.num_bytes < CACHED_BYTES
    return Roofline(max(moved_s, computed_s), is_cached)


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
    seconds, least = measure(op, implementation, case), roofline(op, case, peaks)
    return Measured(
        op=op.name,
        backend=implementation.backend,
        case=case.name,
        seconds=seconds,
        share=least.seconds / seconds,
        is_cached=least.is_cached,
        over_reference=None if reference_s is None else reference_s / seconds,
    )


Baselines = dict[str, dict[str, Kept]]  # machine -> key


def load_baselines(path: Path) -> Baselines:
    stored = json.loads(path.read_text()) if path.exists() else {}
    return {
        machine: {key: Kept(**figures) for key, figures in by_key.items()}
        for machine, by_key in stored.items()
    }


def keep(machine: str, found: list[Measured], path: Path) -> None:
    baselines = load_baselines(path)
    baselines[machine] = baselines.get(machine, {}) | {
        m.key: Kept(round(m.share, 4), round(m.seconds * 1e6, 2)) for m in found
    }
    stored = {
        machine: {key: kept._asdict() for key, kept in by_key.items()}
        for machine, by_key in baselines.items()
    }
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def slower(found: list[Measured], kept: dict[str, Kept], slack: float) -> list[str]:
    """Lines of what lost more than `slack` of its baseline's speed, the most first."""
    over = {m.key: m.speed_over(kept[m.key]) for m in found if m.key in kept}
    lost = sorted((speed, key) for key, speed in over.items() if speed < 1 - slack)
    return [f"slower: {key}, x{speed:.2f} of its baseline" for speed, key in lost]


def main() -> int:
    """Measure, print, and compare with the baseline or keep a new one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=sorted(OPS))
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default_device())
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--keep", action="store_true", help="store what is measured as the baseline"
    )
    parser.add_argument("--baselines", type=Path, default=BASELINES, help="the file they are in")
    parser.add_argument(
        "--slack", type=float, default=0.25, help="loss that is noise; default 0.25"
    )
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
    kept = load_baselines(args.baselines).get(machine, {})
    found = []
    for op in [OPS[args.op]] if args.op else OPS.values():
        for case in benches_of(op, args.device):
            if args.case in case.name:
                for one in measured(op, case, peaks):
                    print(one.line(kept.get(one.key)), flush=True)
                    found.append(one)
    if args.keep:
        keep(machine, found, args.baselines)
        print(f"kept {len(found)} figures of {machine} in {args.baselines}")
        return 0
    lost = slower(found, kept, args.slack)
    print(
        "\n".join(
            lost or [f"{len(found)} measured, {sum(m.key in kept for m in found)} kept before"]
        )
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
