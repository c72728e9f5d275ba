# SPDX-License-Identifier: Apache-2.0
"""`make bench`: shares of this run's roofline, and the kept baseline beside them."""

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

from benchmarks import kernels
from benchmarks.kernels import (
    MEMORY_BYTES,
    Bandwidth,
    Kept,
    Measured,
    Peaks,
    keep,
    load_baselines,
    main,
    measure_peaks,
    measured,
    roofline,
    slower,
)
from tokenlight.kernels import FORMATS, OPS, contract, load_backends
from tokenlight.kernels.case import Case
from tokenlight.kernels.machine import has_triton
from tokenlight.kernels.ops.linear import cases as linear_cases
from tokenlight.kernels.tuning import benches_of, machine_facts

# 1 GB/s of memory, ten times that of caches.
MACHINE = Bandwidth(lambda size: size / (1e9 if size == MEMORY_BYTES else 1e10))
PEAKS = Peaks(bandwidth=MACHINE, float_ops_per_s=1e12, int_ops_per_s=2e12)
MEASURED = Measured(
    op="silu_mul",
    backend="cpu",
    case="8x4",
    seconds=2e-3,
    share=0.8,
    is_cached=False,
    over_reference=3.0,
)


def case(num_bytes: int, num_flops: int, name: str = "bf16") -> Case:
    return Case(
        name="", args=(), kwargs={"format": FORMATS[name]}, num_bytes=num_bytes, num_flops=num_flops
    )


@pytest.mark.parametrize(
    ("one", "least"),
    [
        (case(10**9, 10**9), (1.0, False)),
        (case(10**6, 10**12), (1.0, False)),
        (case(10**6, 10**12, "q4_k"), (0.5, False)),
        (case(10**6, 0), (1e-4, True)),
        (case(0, 0), (0.0, False)),
    ],
)
def test_the_roofline_is_what_moves_or_what_computes(one: Case, least: tuple[float, bool]) -> None:
    seconds, is_cached = roofline(OPS["linear"], one, PEAKS)
    assert (seconds, is_cached) == (pytest.approx(least[0]), least[1])


def test_bandwidth_is_measured_once_for_each_working_set() -> None:
    """In whole pages; what no cache holds is the memory's, however much it is."""
    asked = []
    bandwidth = Bandwidth(lambda size: asked.append(size) or 2.0)
    told = [bandwidth.of(num_bytes) for num_bytes in (1, 4096, 4097, 1 << 30, 1 << 31)]
    assert asked == [4096, 8192, MEMORY_BYTES]
    assert told == [size / 2 for size in (4096, 4096, 8192, MEMORY_BYTES, MEMORY_BYTES)]


@pytest.mark.slow
def test_this_machines_peaks_are_of_this_run() -> None:
    """A cache answers faster than the memory, and eight bits multiply faster than floats."""
    peaks = measure_peaks("cpu")
    # So many that the call itself is a small part of their time, and few enough for a core's cache.
    cached = peaks.bandwidth.of(128 << 10)
    assert 1e8 < peaks.bandwidth.of(MEMORY_BYTES) < cached < 1e13
    assert 1e8 < peaks.float_ops_per_s < peaks.int_ops_per_s


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
    cached = {MEASURED.key: Kept(share=0.8, us=1000.0)}
    assert "x0.50" in slower([MEASURED._replace(is_cached=True)], cached, 0.25)[0]
    assert slower([MEASURED._replace(case="new")], kept, 0.25) == []


def test_each_kernel_is_measured_beside_the_reference() -> None:
    one = Case(name="8x4", args=(torch.randn(8, 8),), num_bytes=10**8)  # as if it were so large
    (found,) = measured(OPS["silu_mul"], one, PEAKS)
    assert (found.backend, found.case) == ("cpu", "8x4")
    assert found.over_reference is not None
    assert found.share == pytest.approx(0.1 / found.seconds)


# What takes seconds to make: weights in each format, of experts, of an 8B model.
LARGE = {
    "embedding", "embedding_slice", "linear", "linear_add", "linear_silu_mul", "moe",
    "norm_linear", "norm_linear_silu_mul", "paged_attention", "softcap",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in OPS]
)
def test_every_op_has_benches_that_say_what_a_kernel_must_move(name: str, monkeypatch) -> None:
    """On a CPU and on a GPU: so `make bench OP=...` has a share of the roofline to print."""
    load_backends("cuda")
    devices = ("cpu", "cuda") if has_triton() else ("cpu",)
    monkeypatch.setattr(contract, "features", lambda device: {"sm80", "sm89", "sm90"})
    op = OPS[name]
    made = import_module(op.contract.__module__.replace(".contract", ".cases"))
    for module in {made, linear_cases}:  # a weight is the same for any number of rows
        monkeypatch.setattr(module, "make_weight", cache(linear_cases.make_weight), raising=False)
    for device in devices:
        able = [i for i in op.implementations if i.device == device]
        for one in benches_of(op, "cpu" if device == "cpu" else "meta") if able else ():
            site = op.site(*one.args, **one.kwargs)._replace(device=device)
            assert one.num_bytes > 0, one.name
            assert any(i.why_not(site) is None for i in able), (one.name, site)


def test_the_command_prints_shares_and_compares_with_what_it_kept(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    """`--keep`, then a run beside it: as one that became ten times slower."""
    monkeypatch.setattr(kernels, "measure_peaks", lambda device: PEAKS)
    path = tmp_path / "kept.json"
    command = ["kernels", "--op", "scale", "--device", "cpu", "--case", "512"]
    command += ["--baselines", str(path)]
    monkeypatch.setattr("sys.argv", [*command, "--keep"])
    assert main() == 0
    machine = machine_facts("cpu")[0]
    (key,) = load_baselines(path)[machine]
    told = capsys.readouterr().out
    assert re.search(r"^scale +cpu +512.* us +\d+% of roofline x[\d.]+ of reference$", told, re.M)
    assert f"kept 1 figures of {machine}" in told
    kept = load_baselines(path)[machine][key]
    fast = {machine: {key: kept._replace(us=kept.us / 10)._asdict()}}
    path.write_text(json.dumps(fast))
    monkeypatch.setattr("sys.argv", command)
    assert main() == 1
    assert re.search(rf"^slower: {re.escape(key)}, x0.\d\d of its", capsys.readouterr().out, re.M)
