# SPDX-License-Identifier: Apache-2.0
"""The sdist builds a wheel, and the wheel alone serves, in a clean environment of its own."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ASK = """
from tokenlight import LLM, SamplingParams
answer = LLM().generate("The capital of France is", SamplingParams(temperature=0), max_tokens=4)
print(answer[0].text)
"""


def run(*command: str, cwd: Path) -> str:
    environ = {"PIP_RETRIES": "10", **os.environ}  # an index may falter for a minute
    result = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel built from it (`python -m build` makes the one from the other)."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


def test_sdist_holds_what_a_build_needs(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    inside = {name.split("/", 1)[1] for name in names if "/" in name}
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "csrc/bindings/control.cc"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "build/", ".make"))]


def test_wheel_holds_the_package_and_no_sources(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        names = archive.namelist()
    assert [n for n in names if n.startswith("tokenlight/control/_control.") and n.endswith(".so")]
    assert [n for n in names if n.startswith("tokenlight/kernels/_cpu.") and n.endswith(".so")]
    assert "tokenlight/py.typed" in names
    assert not [n for n in names if n.startswith(("csrc/", "tests/", "benchmarks/"))]


def test_wheel_serves_in_a_clean_environment(dist: Path, default_model_path: Path) -> None:
    venv = dist / "venv"
    run(sys.executable, "-m", "venv", str(venv), cwd=dist)
    python = str(venv / "bin" / "python")
    wheel = str(next(dist.glob("*.whl")))
    run(python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), wheel, cwd=dist)
    assert "tokenlight" in run(str(venv / "bin" / "tokenlight"), "--version", cwd=dist)
    assert "Paris" in run(python, "-c", ASK, cwd=dist)


def test_no_build_file_asks_for_the_builders_own_processor() -> None:
    for path in [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml", *ROOT.glob("csrc/**/CMake*")]:
        assert "-march=native" not in path.read_text(), path
        assert "-mtune=native" not in path.read_text(), path
