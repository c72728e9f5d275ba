# SPDX-License-Identifier: Apache-2.0
"""Claude Code, Codex, qwen-code and mini-swe-agent themselves, each on a task of two tool calls.

They run in a network namespace that has a loopback and nothing else. `make test-agents AGENTS=DIR`;
skipped, and said so, where they are not installed.
"""

import json
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.agents.clients import AGENTS, CLIENTS
from tests.agents.session import DONE, SUB_DONE
from tests.server.scripted_engine import BLOCK_TOKENS, CONTEXT_TOKENS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]


def run(name: str, *arguments: str) -> dict:
    """What came of one agent's session."""
    if not CLIENTS[name].program.exists():
        pytest.skip(f"{name} is not in {AGENTS}: scripts/install_agents.sh installs it")
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: agents run only where they reach nobody")
    ran = subprocess.run(
        [
            *("unshare", "--map-root-user", "--net", "sh", "-c"),
            'ip link set lo up && exec "$0" -m tests.agents.session "$@"',
            *(sys.executable, name, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module", params=CLIENTS)
def session(request) -> dict:
    return run(request.param)


def test_the_task_is_completed(session):
    assert not session["faults"], session
    assert session["code"] == 0, session
    assert session["replies"][-1].startswith((DONE, "Step 3")), session


def test_each_turn_finds_the_one_before_in_the_cache(session):
    """All of the prompt before and of the answer to it, but for one block."""
    for before, after in pairwise(range(len(session["replies"]))):
        written = session["prompt_tokens"][before] + session["reply_tokens"][before]
        assert session["cached_tokens"][after] >= written - BLOCK_TOKENS, session


@pytest.mark.parametrize("alias", ["haiku", "sonnet", "opus", "fable"])
def test_a_sub_agent_of_any_alias_is_answered_by_the_served_model(alias):
    """A model chooses among the vendor's names; a request for one of those would be 404."""
    found = run("claude_code", str(CONTEXT_TOKENS), alias)
    assert found["code"] == 0, found
    assert found["replies"][-1].startswith("It said "), found
    assert SUB_DONE in found["replies"][-1], found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("claude_code", "Prompt is too long"),
        ("codex", "ran out of room in the model's context window"),
    ],
)
def test_a_prompt_that_does_not_fit_is_understood(name, words):
    """The client says so in its own words: it has read the error as what it is."""
    found = run(name, "20000")
    assert found["code"] != 0
    assert words in found["out"] + found["err"], found
    assert found["num_requests"] == 0, "nothing of it may reach the engine"
