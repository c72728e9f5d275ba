# SPDX-License-Identifier: Apache-2.0
"""Tuning chooses by measured time, is kept per machine and version, and can be ignored."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tokenlight import __version__
from tokenlight.base.env import read_env
from tokenlight.kernels import tuning
from tokenlight.kernels.case import Case
from tokenlight.kernels.contract import PORTABLE, REFERENCE, TUNED, Op, Site, op
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.ops import OPS
from tokenlight.kernels.plugins import Plugin

ROOT = Path(__file__).parents[2]
SITE = Site("cpu", torch.float32, torch.float32, None)


def doubling() -> Op:
    @op
    def doubled(x_T: Tensor) -> Tensor:
        raise NotImplementedError

    doubled.implement("reference", device="any", rank=REFERENCE)(lambda x_T: x_T + x_T)
    doubled.implement("early", device="cpu", rank=TUNED)(lambda x_T: 2 * x_T)
    doubled.implement("late", device="cpu", rank=PORTABLE)(lambda x_T: 2 * x_T)
    return doubled


CASES = [Case(name=str(n), args=(torch.ones(n),)) for n in (1, 100)]


def times_of(seconds: dict[tuple[str, str], float]) -> tuning.Measure:
    return lambda op, implementation, case: seconds[implementation.backend, case.name]


FASTER_WHERE_LONG = {
    ("early", "1"): 1.0,
    ("late", "1"): 2.0,
    ("early", "100"): 9.0,
    ("late", "100"): 1.0,
}


def test_the_fastest_over_all_sizes_of_a_site_is_chosen() -> None:
    (tuned,) = tuning.tune(doubling(), CASES, times_of(FASTER_WHERE_LONG))
    assert tuned.backend == "late"
    assert tuned.site == SITE
    assert tuned.relative == pytest.approx({"early": 3.0, "late": 2**0.5})


def test_a_reference_is_no_candidate_and_one_kernel_no_choice() -> None:
    doubled = doubling()
    doubled.keep_first(2)
    assert list(tuning.tune(doubled, CASES, times_of({}))) == []


def test_what_is_kept_is_chosen_by_the_next_process(tmp_path: Path) -> None:
    path = tuning.tuning_path("cpu", tmp_path)
    tuning.save(path, list(tuning.tune(doubling(), CASES, times_of(FASTER_WHERE_LONG))))
    doubled = doubling()
    assert doubled.bind(SITE).backend == "early"
    assert tuning.apply(path, {"doubled": doubled}) == 1
    assert doubled.bind(SITE).backend == "late"
    assert doubled(torch.ones(1)).item() == 2


def test_two_that_tune_at_once_keep_a_whole_file_each(tmp_path: Path) -> None:
    """Readers find all of one or all of the other, and no writer loses its own to the other."""
    path = tuning.tuning_path("cpu", tmp_path)
    num_sites = 200
    formats = [Format(f"f{n}", 32, 34, "plain") for n in range(num_sites)]
    tuned = [
        tuning.Tuned("linear", Site("cpu", torch.float32, torch.uint8, each), {"a": 1.0})
        for each in formats
    ]
    seen = set()

    def save(_: int) -> None:
        tuning.save(path, tuned)
        seen.add(tuning.apply(path, {}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(40)))
    assert seen == {num_sites}
    assert list(path.parent.iterdir()) == [path]


def test_a_choice_that_is_gone_falls_back_to_ranks(tmp_path: Path) -> None:
    path = tuning.tuning_path("cpu", tmp_path)
    tuning.save(path, list(tuning.tune(doubling(), CASES, times_of(FASTER_WHERE_LONG))))
    doubled = doubling()
    doubled.keep_first(2)
    tuning.apply(path, {"doubled": doubled})
    assert doubled.bind(SITE).backend == "early"


def test_tuning_one_op_keeps_the_others_and_formats_survive(tmp_path: Path) -> None:
    path = tuning.tuning_path("cpu", tmp_path)
    site = Site("cpu", torch.float32, torch.uint8, FORMATS["q4_k"])
    tuning.save(path, [tuning.Tuned("linear", site, {"a": 1.0, "b": 2.0})])
    tuning.save(path, [tuning.Tuned("doubled", SITE, {"late": 1.0})])
    linear = doubling()
    assert tuning.apply(path, {"linear": linear, "doubled": doubling()}) == 2
    assert linear._preferred == {site: "a"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sites": {"x": "y"}}', '{"sites": {"a|b|c|d|": 1}}']
)
def test_a_damaged_file_is_ignored(text: str, tmp_path: Path) -> None:
    path = tuning.tuning_path("cpu", tmp_path)
    path.parent.mkdir()
    path.write_text(text)
    assert tuning.apply(path, {"doubled": doubling()}) == 0


def test_another_machine_or_version_has_another_file(tmp_path: Path, monkeypatch) -> None:
    here = tuning.tuning_path("cpu", tmp_path)
    facts = tuning.machine_facts("cpu")
    for n in range(len(facts)):
        other = (*facts[:n], facts[n] + "x", *facts[n + 1 :])
        monkeypatch.setattr(tuning, "machine_facts", lambda device, other=other: other)
        assert tuning.tuning_path("cpu", tmp_path) != here
    assert read_env().cache_dir in tuning.tuning_path("cpu").parents


@pytest.mark.parametrize(("has_triton", "told"), [(True, ["3.9"]), (False, [])])
def test_what_compiles_a_gpus_kernels_is_a_version_as_well(has_triton, told, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "has_triton", lambda: has_triton)
    monkeypatch.setattr(tuning, "version", lambda name: {"triton": "3.9"}[name])
    before = [__version__, torch.__version__]
    assert list(tuning.machine_facts.__wrapped__("cuda")[-2 - len(told) :]) == before + told
    assert tuning.machine_facts.__wrapped__("cpu")[-1] == torch.__version__


def test_what_a_plugin_was_measured_as_ends_with_its_version(monkeypatch) -> None:
    def facts(package: str) -> tuple[str, ...]:
        works = Plugin(name="fast", package=package, added=("silu_mul/fast",))
        broken = Plugin(name="broken", package="broken 1.0", error="no such library")
        monkeypatch.setattr(tuning, "PLUGINS", [works, broken])
        return tuning.machine_facts.__wrapped__("cpu")

    before, after = facts("fast 1.0"), facts("fast 1.1")
    assert set(before) ^ set(after) == {"fast 1.0", "fast 1.1"}
    assert "broken 1.0" not in before


@pytest.mark.parametrize("name", ["rms_norm", "rope_write_kv_", "silu_mul", "sample"])
def test_a_gpu_is_measured_on_what_its_models_compute(name: str) -> None:
    """Sites in bfloat16, or of logits; on the device "meta", since there may be no GPU."""
    sites = {
        OPS[name].site(*case.args, **case.kwargs) for case in tuning.benches_of(OPS[name], "meta")
    }
    dtypes = {site.dtype for site in sites}
    assert dtypes == ({torch.float32} if name == "sample" else {torch.bfloat16})


SLOW_PLUGIN = """
import time
from tokenlight import kernels

def register():
    (builtin,) = (i.run for i in kernels.softcap.implementations if i.backend == "cpu")

    @kernels.softcap.implement("sleepy", device="cpu", rank=1000)
    def sleepy(x_TN, *, cap):
        time.sleep(0.05)
        return builtin(x_TN, cap=cap)
"""


@pytest.mark.slow
def test_tune_measures_and_the_next_start_uses_it_unless_told_not_to(tmp_path: Path) -> None:
    """A plugin of the highest rank is slow here."""
    facts = tmp_path / "sleepy-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sleepy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tokenlight.kernels]\nsleepy=sleepy:register\n")
    (tmp_path / "sleepy.py").write_text(SLOW_PLUGIN)

    def kernels(*arguments: str, **environ: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tokenlight", "kernels", *arguments, "--op", "softcap"],
            cwd=ROOT,
            env={
                "PYTHONPATH": str(tmp_path),
                "TOKENLIGHT_CACHE": str(tmp_path / "cache"),
                "HOME": str(tmp_path),
                **environ,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "softcap[float32]: sleepy (" in kernels("--device", "cpu")
    assert "softcap[float32]: cpu (cpu x1.00, sleepy x" in kernels("tune", "--device", "cpu")
    (kept,) = (tmp_path / "cache" / "kernels").glob("cpu-*.json")
    assert json.loads(kept.read_text())["sites"] == {"softcap|cpu|float32|float32|": "cpu"}
    told = kernels("--device", "cpu")
    assert "softcap[float32]: cpu" in told
    assert "sleepy: slower when tuned" in told
    ignoring = kernels("--device", "cpu", TOKENLIGHT_KERNEL_TUNING="ignore")
    assert "softcap[float32]: sleepy (" in ignoring
