# SPDX-License-Identifier: Apache-2.0
"""Rooms that never import torch, seen at run time: lint is blind to what a dependency imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_EVERY_MODULE = """
import importlib, pkgutil, sys
room = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
heavy = {"torch", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "room", ["base", "config", "checkpoint", "wire", "control", "text", "server", "cli"]
)
def test_no_module_of_the_room_imports_torch(room):
    command = [sys.executable, "-c", _EVERY_MODULE, f"tokenlight.{room}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["tokenlight", "tokenlight.engine.client"])
def test_what_an_api_process_imports_is_free_of_torch(module):
    code = f"import sys, {module}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
