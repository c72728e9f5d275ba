# SPDX-License-Identifier: Apache-2.0
"""docs/config.md is what the dataclasses say; a stale page is found."""

from pathlib import Path

from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.docs import main, page
from tokenlight.config.flags import flags_of

PAGE = Path(__file__).parents[2] / "docs/config.md"


def test_the_page_in_the_tree_is_fresh():
    assert PAGE.read_text() == page()


def test_a_stale_page_fails_the_check_and_writing_mends_it(tmp_path, capsys):
    stale = tmp_path / "config.md"
    stale.write_text(page() + "\nby hand\n")
    assert main(["--check", str(stale)]) == 1
    assert "is stale" in capsys.readouterr().err
    assert main([str(stale)]) == 0
    assert main(["--check", str(stale)]) == 0


def test_every_flag_and_variable_is_on_the_page():
    text = page()
    for flag in [*flags_of(EngineConfig), *flags_of(ServerConfig)]:
        assert f"`{flag.shown}`" in text
    assert "`TOKENLIGHT_CACHE`" in text
