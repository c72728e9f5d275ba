# SPDX-License-Identifier: Apache-2.0
"""What the page shows works: its Python runs, and its agents are pointed as in their own tests."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.agents.clients import CLIENTS
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


AGENTS = README[README.index("## Point an agent") : README.index("## From Python")]
URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("program", "client"), [("claude", "claude_code"), ("qwen", "qwen_code"), ("codex", "codex")]
)
def test_an_agent_is_pointed_as_in_its_own_test(program, client):
    """What the page leaves out is an agent that asks for a model or a login of its own vendor."""
    (shell,) = re.findall(r"^```\n(.*?)^```$", AGENTS, re.MULTILINE | re.DOTALL)
    lines = [*shell.replace("\\\n", " ").splitlines(), *re.findall(r"`(\w+=.*?)`", AGENTS)]
    commands = [shlex.split(line, comments=True) for line in lines]
    (words,) = [words for words in commands if program in words]
    at = words.index(program)
    shown = dict(word.split("=", 1) for word in words[:at])
    tested = {
        name: value.replace("key", "unused").replace("tiny", "NAME")
        for name, value in CLIENTS[client].environment(URL).items()
        if name.startswith(("ANTHROPIC_", "OPENAI_", "LOCAL_"))
    }
    assert shown == tested
    assert words[at + 1 :] == list(CLIENTS[client].flags)


def test_a_provider_is_declared_as_in_its_own_test(tmp_path):
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", AGENTS, re.MULTILINE | re.DOTALL)
    CLIENTS["codex"].prepare(URL, tmp_path)
    tested = (tmp_path / "config.toml").read_text().replace("tiny", "NAME")
    assert tomllib.loads(shown) == tomllib.loads(tested)
