# SPDX-License-Identifier: Apache-2.0
"""The explorer exhausts its worlds, finds every planted mutant, and runs clean under sanitizers."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CSRC = Path(__file__).parents[2] / "csrc"
WORLDS = CSRC / "tests" / "worlds.md"
EXPLORER = [CSRC / "tests" / f"{name}.cc" for name in ("shadow", "world", "world_check")]
EXPLORER += [CSRC / "tests" / "control_explorer.cc", *sorted((CSRC / "control").glob("*.cc"))]
MUTANTS = re.findall(
    r"^    k(?!None)(\w+),", (CSRC / "control/mutants.h").read_text(), re.MULTILINE
)


def build(folder: Path, *flags: str, sources: list[Path] = EXPLORER) -> Path:
    """One translation unit: it compiles in a fraction of the time of many."""
    unit, program = folder / "unit.cc", folder / "program"
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", f"-I{CSRC}", *flags]
    subprocess.run([*command, str(unit), "-o", str(program)], check=True)
    return program


def explore(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), str(WORLDS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_worlds_hold_and_are_as_large_as_listed(tmp_path):
    result = explore(build(tmp_path, "-O2"))
    assert result.returncode == 0, result.stdout
    sizes = re.findall(r"world (\S+) states (\d+) listed (\d+)", result.stdout)
    assert [s for s in sizes if s[1] != s[2]] == []
    (total,) = re.findall(r"total (\d+)", result.stdout)
    assert int(total) > 1_000_000


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """An explorer that plants the mutant it is told to."""
    return build(tmp_path_factory.mktemp("planted"), "-O1", "-DTOKENLIGHT_PLANTS_MUTANTS")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_found(mutant, planted):
    result = explore(planted, "--mutant", str(1 + MUTANTS.index(mutant)))
    assert result.returncode != 0, f"{mutant} is not found"
    assert "BROKEN" in result.stdout or result.returncode < 0


def test_no_mutant_no_fault(planted):
    assert explore(planted, "--only", "pair", "--mutant", "0").returncode == 0


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= 10


def test_sanitizers_find_nothing(tmp_path):
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = build(tmp_path, *flags)
    for world in (
        "pair",
        "tight",
        "stops-1",
        "drafts-0",
        "salt-1",
        "parts-1",
        "hybrid-2",
        "host-2",
    ):
        result = explore(program, "--only", world)
        assert result.returncode == 0, result.stdout + result.stderr
    unit = [CSRC / "tests" / "control_test.cc", *sorted((CSRC / "control").glob("*.cc"))]
    subprocess.run([str(build(tmp_path, *flags, sources=unit))], check=True)
