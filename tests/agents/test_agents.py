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
from tests.agents.session import DONE
from tests.server.scripted_engine import BLOCK_TOKENS

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=CLIENTS)
def session(request) -> dict:
    """What came of one agent's session."""
    name = request.param
    if not CLIENTS[name].program.exists():
        pytest.skip(f"{name} is not in {AGENTS}: scripts/install_agents.sh installs it")
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: agents run only where they reach nobody")
    ran = subprocess.run(
        [
            *("unshare", "--map-root-user", "--net", "sh", "-c"),
            'ip link set lo up && exec "$0" -m tests.agents.session "$1"',
            *(sys.executable, name),
        ],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_the_task_is_completed(session):
    assert not session["faults"], session
    assert session["code"] == 0, session
    assert session["replies"][-1].startswith((DONE, "Step 3")), session


def test_each_turn_finds_the_one_before_in_the_cache(session):
    """All of the prompt before and of the answer to it, but for one block."""
    for before, after in pairwise(range(len(session["replies"]))):
        written = session["prompt_tokens"][before] + session["reply_tokens"][before]
        assert session["cached_tokens"][after] >= written - BLOCK_TOKENS, session
