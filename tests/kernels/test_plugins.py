# SPDX-License-Identifier: Apache-2.0
"""Kernels from other packages: found by entry point, chosen by rank, skipped when broken."""

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE, REFERENCE, Op, op
from tokenlight.kernels.plugins import GROUP, load_plugin

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kernel_plugin"


def doubling() -> dict[str, Op]:
    @op
    def doubled(x_T: Tensor) -> Tensor:
        raise NotImplementedError

    doubled.implement("reference", device="any", rank=REFERENCE)(lambda x_T: x_T + x_T)
    return {"doubled": doubled}


def entry_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> EntryPoint:
    name = f"plugin_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return EntryPoint("mine", f"{name}:register", GROUP)


OPS_BY_PLUGIN: dict[str, Op] = {}

REGISTER = """
from tests.kernels.test_plugins import OPS_BY_PLUGIN

def register():
    OPS_BY_PLUGIN["doubled"].implement("mine", device="cpu", rank=50)(lambda x_T: 2 * x_T)
"""


def test_a_plugin_adds_a_kernel_that_is_chosen_by_rank(tmp_path, monkeypatch) -> None:
    ops = doubling()
    monkeypatch.setitem(OPS_BY_PLUGIN, "doubled", ops["doubled"])
    plugin = load_plugin(entry_of(tmp_path, monkeypatch, REGISTER), ops)
    assert (plugin.added, plugin.error) == (("doubled/mine",), None)
    site = ops["doubled"].site(torch.ones(1))
    assert ops["doubled"].bind(site).backend == "mine"
    assert ops["doubled"].implementations[-1].rank == PORTABLE


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_vendor_library", "ModuleNotFoundError: No module named 'no_such_vend"),
        ("def regster(): pass", "AttributeError: .*register"),
        (REGISTER + "    raise RuntimeError('needs driver 600')", "RuntimeError: needs driver 600"),
        (REGISTER + REGISTER.splitlines()[-1], "ValueError: doubled has .* named 'mine' already"),
    ],
)
def test_a_broken_plugin_is_named_and_leaves_nothing(source, error, tmp_path, monkeypatch) -> None:
    ops = doubling()
    monkeypatch.setitem(OPS_BY_PLUGIN, "doubled", ops["doubled"])
    plugin = load_plugin(entry_of(tmp_path, monkeypatch, source), ops)
    assert plugin.added == ()
    assert plugin.error is not None
    assert re.match(error, plugin.error)
    assert [i.backend for i in ops["doubled"].implementations] == ["reference"]


def declare(folder: Path, package: str, entry: str) -> None:
    """As much of an installed distribution as makes an entry point known."""
    facts = folder / f"{package}-1.2.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (facts / "entry_points.txt").write_text(f"[{GROUP}]\n{entry}\n")


def listed(*, path: str, python: str = sys.executable, op_name: str = "softcap") -> list[str]:
    done = subprocess.run(
        [python, "-m", "tokenlight", "kernels", "--op", op_name, "--device", "cpu"],
        cwd=ROOT,
        env={"PYTHONPATH": path, "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_plugins_are_listed_above_the_ops(tmp_path: Path) -> None:
    declare(tmp_path, "tokenlight-plain-softcap", "plain_softcap=tokenlight_plain_softcap:register")
    declare(tmp_path, "broken", "broken_kernels=broken_kernels:register")
    lines = listed(path=f"{tmp_path}:{EXAMPLE}")
    assert lines[1:3] == [
        "plugin broken_kernels of broken 1.2: skipped: "
        "ModuleNotFoundError: No module named 'broken_kernels'",
        "plugin plain_softcap of tokenlight-plain-softcap 1.2: softcap/plain",
    ]
    (chosen,) = (line for line in lines if line.startswith("softcap[float32]: "))
    assert re.match(r"softcap\[float32\]: cpu.* plain: does not take torch.float32", chosen)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_installs_and_is_chosen(tmp_path: Path) -> None:
    """In an environment of its own that sees this one's packages."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    here = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    there = subprocess.check_output([python, "-c", code], text=True).strip()
    # As a directory of packages, so that an editable install there is found too.
    (Path(there) / "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n{ROOT}\n")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", str(EXAMPLE)]
    subprocess.run([python, *install], check=True)
    lines = listed(path="", python=python)
    assert "plugin plain_softcap of tokenlight-plain-softcap 0.1.0: softcap/plain" in lines
    chosen = (
        "import torch; from tokenlight import kernels; x = torch.ones(1, 2, dtype=torch.half); "
        "print(kernels.softcap.bind(kernels.softcap.site(x, cap=1.0)).backend, "
        "kernels.softcap(x, cap=1.0).tolist())"
    )
    said = subprocess.check_output([python, "-c", chosen], text=True, cwd=tmp_path)
    assert said.startswith("plain [[0.76"), said
