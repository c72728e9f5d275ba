# SPDX-License-Identifier: Apache-2.0
"""docs/control-plane.md names the states that the code has; the stub is as generated."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tokenlight import control

ROOT = Path(__file__).parents[2]


def edges_of_the_code() -> set[tuple[str, str, str]]:
    code = (ROOT / "csrc/control/states.h").read_text()
    free = re.findall(r"\[\[nodiscard\]\] inline (\w+) (\w+)\((\w+)&& from", code)
    ends = re.findall(r"\[\[nodiscard\]\] Finished operator\(\)\((\w+)&& from\)", code)
    edges = {(source, edge, target) for target, edge, source in free}
    return edges | {(source, "End", "Finished") for source in ends}


def test_the_table_of_states_is_the_code():
    page = (ROOT / "docs/control-plane.md").read_text()
    section = page.split("## States")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \|", section, re.MULTILINE)
    assert set(rows) - {("from", "edge", "to")} == edges_of_the_code()


def test_every_state_can_end():
    states = set(
        re.findall(
            r"^struct (\w+) \{\n    (?:Resident|std::unique_ptr<Request>)",
            (ROOT / "csrc/control/states.h").read_text(),
            re.MULTILINE,
        )
    )
    ends = {source for source, edge, _ in edges_of_the_code() if edge == "End"}
    assert ends == states - {"Resident", "Finished"}


def test_the_stub_is_fresh(tmp_path):
    pytest.importorskip("nanobind", reason="what makes the stub is a tool of development")
    stub = tmp_path / "fresh.pyi"
    module = "tokenlight.control._control"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", module, "-o", str(stub)]
    subprocess.run(command, check=True, cwd=ROOT)
    kept = Path(control.__file__).with_name("_control.pyi").read_text()
    assert stub.read_text() == kept
