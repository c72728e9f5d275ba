# SPDX-License-Identifier: Apache-2.0
"""docs/models.md is what the registry and the tests say; a stale page is found."""

from pathlib import Path

from scripts.models_page import page
from tokenlight.models import model_types

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_tree_is_fresh() -> None:
    made = page()
    assert (ROOT / "docs/models.md").read_text() == made
    for model_type in model_types():
        assert f"| `{model_type}` |" in made
