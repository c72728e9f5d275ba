# SPDX-License-Identifier: Apache-2.0
"""`make bench`: shares of this run's roofline, and the kept baseline beside them."""

from pathlib import Path

import pytest
import torch

from benchmarks.kernels import (
    Kept,
    Measured,
    Peaks,
    keep,
    load_baselines,
    measured,
    roofline_s,
    slower,
)
from tokenlight.kernels import FORMATS, OPS
from tokenlight.kernels.case import Case

PEAKS = Peaks(bytes_per_s=1e9, float_ops_per_s=1e12, int_ops_per_s=2e12)
MEASURED = Measured(
    op="silu_mul", backend="cpu", case="8x4", seconds=2e-3, share=0.8, over_reference=3.0
)


def case(num_bytes: int, num_flops: int, name: str = "bf16") -> Case:
    return Case(
        name="", args=(), kwargs={"format": FORMATS[name]}, num_bytes=num_bytes, num_flops=num_flops
    )


@pytest.mark.parametrize(
    ("one", "least_s"),
    [
        (case(10**9, 10**9), 1.0),
        (case(10**6, 10**12), 1.0),
        (case(10**6, 10**12, "q4_k"), 0.5),
        (case(10**6, 0), 0.0),  # a cache holds it: the memory's bandwidth is no bound
    ],
)
def test_the_roofline_is_what_moves_or_what_computes(one: Case, least_s: float) -> None:
    assert roofline_s(OPS["linear"], one, PEAKS) == pytest.approx(least_s)


def test_a_baseline_is_kept_by_machine_and_stands_beside(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    keep("this", [MEASURED], path)
    keep("other", [MEASURED._replace(share=0.1)], path)
    keep("this", [MEASURED._replace(case="9x9", share=0.0)], path)
    kept = load_baselines(path)
    assert kept["this"][MEASURED.key] == Kept(share=0.8, us=2000.0)
    assert set(kept) == {"this", "other"}
    line = MEASURED._replace(share=0.9).line(kept["this"][MEASURED.key])
    assert "90% of roofline x1.12 of baseline (2000.0 us, 80%) x3.0 of reference" in line


def test_what_became_slower_is_named() -> None:
    kept = {MEASURED.key: Kept(share=0.8, us=2000.0)}
    # The machine is slower today, and so is its roofline.
    assert slower([MEASURED._replace(seconds=9e-3, share=0.7)], kept, 0.25) == []
    (line,) = slower([MEASURED._replace(share=0.4)], kept, 0.25)
    assert line == f"slower: {MEASURED.key}, x0.50 of its baseline"
    # Where a cache holds the operands, by the time itself.
    cached = {MEASURED.key: Kept(share=0.0, us=1000.0)}
    assert "x0.50" in slower([MEASURED._replace(share=0.0)], cached, 0.25)[0]
    assert slower([MEASURED._replace(case="new")], kept, 0.25) == []


def test_each_kernel_is_measured_beside_the_reference() -> None:
    one = Case(name="8x4", args=(torch.randn(8, 8),), num_bytes=10**8)
    (found,) = measured(OPS["silu_mul"], one, PEAKS)
    assert (found.backend, found.case) == ("cpu", "8x4")
    assert found.over_reference is not None
    assert found.share == pytest.approx(0.1 / found.seconds)
