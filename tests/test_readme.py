# SPDX-License-Identifier: Apache-2.0
"""Python that the pages show is Python, and what needs no server runs as it is written there."""

import re
from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama
from tests.test_packaging import ASK

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
OFFLINE = [block for block in BLOCKS if "from tokenlight import" in block]


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("readme") / "tiny.gguf", seed=5)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_python(block):
    compile(block, "README.md", "exec")


def test_the_page_shows_both_ways():
    assert (len(BLOCKS), len(OFFLINE)) == (2, 1)


@pytest.mark.e2e
@pytest.mark.parametrize("script", [*OFFLINE, ASK], ids=["README", "packaging"])
def test_the_call_without_a_server_runs(script, tiny_path, capsys):
    """With another model, as the page says it goes; the default one is not fetched."""
    assert script.count("LLM()") == 1
    script = script.replace("LLM()", f"LLM({str(tiny_path)!r})")
    names: dict[str, object] = {}
    exec(compile(script, "README.md", "exec"), names)
    if "llm" in names:
        names["llm"].close()
    assert capsys.readouterr().out.strip()
