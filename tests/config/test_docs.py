# SPDX-License-Identifier: Apache-2.0
"""docs/config.md is what the dataclasses say; a stale page is found."""

import subprocess
import sys
from pathlib import Path

from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.docs import page
from tokenlight.config.flags import flags_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/config.md"


def test_the_page_in_the_tree_is_fresh():
    assert PAGE.read_text() == page()


def test_the_module_prints_the_page():
    command = [sys.executable, "-m", "tokenlight.config.docs"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert printed == page()


def test_every_flag_and_variable_is_on_the_page():
    text = page()
    for flag in [*flags_of(EngineConfig), *flags_of(ServerConfig)]:
        assert f"`{flag.shown}`" in text
    assert "`TOKENLIGHT_CACHE`" in text
