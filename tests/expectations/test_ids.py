# SPDX-License-Identifier: Apache-2.0
"""Each expectation of agents' users has a test that is named by its id, wherever it lives."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HELD = {
    "a": (1, 2, 3, 4, 5, 8, 11),
    "b": range(1, 12),
    "c": (1, 2, 3, 4, "4b", 5, 6, 7, 8),
    "h": (1, 2, 3),
    "i": range(1, 9),
    "j": (1,),
}
IDS = [f"t_{area}{number}" for area, numbers in HELD.items() for number in numbers]


@pytest.fixture(scope="module")
def names():
    sources = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return [name for source in sources for name in re.findall(r"^def test_(\w+)", source, re.M)]


@pytest.mark.parametrize("id", IDS)
def test_an_expectation_has_a_test_of_its_name(names, id):
    assert [name for name in names if name == id or name.startswith(f"{id}_")]
