# SPDX-License-Identifier: Apache-2.0
"""docs/models.md is what the registry and the tests say; a stale page is found."""

import subprocess
import sys
from pathlib import Path

from tokenlight.models import model_types

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_tree_is_fresh() -> None:
    command = [sys.executable, "scripts/models_page.py"]
    made = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert (ROOT / "docs/models.md").read_text() == made
    for model_type in model_types():
        assert f"| `{model_type}` |" in made
