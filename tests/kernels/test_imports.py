# SPDX-License-Identifier: Apache-2.0
"""Kernels are imported without what only a GPU needs."""

import os
import subprocess
import sys


def test_kernels_work_where_triton_is_not_installed() -> None:
    """Neither import nor a question about CUDA needs it; CUDA falls back to references."""
    code = """
import sys
sys.modules["triton"] = None  # an import of it fails
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "triton" else found(name, *a)
from tokenlight import kernels
assert not any(i.backend == "triton" for op in kernels.OPS.values() for i in op.implementations)
print([line for line in kernels.explain("cuda", "add") if line.startswith("add[float32]")])
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.startswith("['add[float32]: reference")


def test_a_cpu_process_does_not_import_triton() -> None:
    code = "import sys, tokenlight.kernels; print('triton' in sys.modules)"
    said = subprocess.check_output(
        [sys.executable, "-c", code], text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    assert said == "False\n"
