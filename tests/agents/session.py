# SPDX-License-Identifier: Apache-2.0
"""Run one agent against a scripted server; `python -m tests.agents.session NAME` in a bare network.

The model that the script plays calls the agent's shell tool twice, then says that it is done. It
looks only at the prompt it is given: the tool must be described there, and each result be there, in
order, before it goes on. Given an alias as well, it asks a sub-agent of that model once instead.
What came of it is printed as one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.agents.clients import CLIENTS, TASK, Client
from tests.server.scripted_engine import CONTEXT_TOKENS, call, scripted

COMMANDS = ("echo first-$((40 + 2))", "echo second-$((50 + 8))")
OUTPUTS = ("first-42", "second-58")
DONE = "Both commands have been run."
SUB_TASK = "Say in one word how the weather is."
SUB_DONE = "Weather-73"
_SHELLS = ("Bash", "bash", "exec_command", "run_shell_command", "shell", "shell_command")


def reply(client: Client, prompt: str) -> str:
    """What the model says next, by what it was given."""
    shell = _find_shell(prompt)
    if shell is None:
        return "A title"  # a request beside the task: a title, a summary
    conversation = prompt[prompt.index("</tools>") :]
    parts = conversation.split("<tool_response>\n")[1:]
    results = [part.split("\n</tool_response>")[0] for part in parts]
    outputs = [text for text in results if any(output in text for output in OUTPUTS)]
    for output, text in zip(OUTPUTS, outputs, strict=False):
        assert output in text, "results are out of order"
    # qwen-code's shell loses an output now and then on a busy machine: the model asks again.
    assert len(results) - len(outputs) <= 3, f"results without output: {results}"
    commands = [*COMMANDS, *filter(None, [client.last_command])]
    if len(outputs) < len(commands):
        return f"Step {len(outputs) + 1}.\n" + call(
            shell["name"], json.dumps(_arguments(shell, commands[len(outputs)]))
        )
    return DONE


def reply_by_sub_agent(alias: str, prompt: str) -> str:
    """What the model says next that has a sub-agent of another model, and what that one says."""
    if TASK not in prompt:
        return SUB_DONE if SUB_TASK in prompt else "A title"
    asks = next((t for t in _tools(prompt) if "subagent_type" in _properties(t)), None)
    if asks is None:
        return "A title"
    if "<tool_response>\n" in (conversation := prompt[prompt.index("</tools>") :]):
        return "It said " + conversation.partition("<tool_response>\n")[2]
    asked = {"description": "Look", "prompt": SUB_TASK, "subagent_type": "general-purpose"}
    return call(asks["name"], json.dumps({**asked, "model": alias, "run_in_background": False}))


def _tools(prompt: str) -> list[dict]:
    if "<tools>\n" not in prompt:
        return []
    listed = prompt[prompt.index("<tools>\n") + 8 : prompt.index("\n</tools>")]
    return [json.loads(line)["function"] for line in listed.splitlines()]


def _properties(tool: dict) -> dict:
    found: dict = tool["parameters"].get("properties", {})
    return found


def _find_shell(prompt: str) -> dict | None:
    return next((tool for tool in _tools(prompt) if tool["name"] in _SHELLS), None)


def _arguments(shell: dict, command: str) -> dict:
    """The command, and something for whatever else the tool requires."""
    known = _properties(shell)
    name = "command" if "command" in known else "cmd"
    made: dict[str, object] = {name: command}
    for required in shell["parameters"].get("required", []):
        kind = known.get(required, {}).get("type")
        made.setdefault(required, {"boolean": False, "number": 1, "array": []}.get(kind, "x"))
    return made


def run(name: str, max_model_tokens: int = CONTEXT_TOKENS, alias: str | None = None) -> dict:
    client = CLIENTS[name]

    def say(prompt: str) -> str:
        return reply(client, prompt) if alias is None else reply_by_sub_agent(alias, prompt)

    with tempfile.TemporaryDirectory() as home_name:
        home = Path(home_name)
        work = home / "work"
        work.mkdir()
        with scripted(say, log_level="warning") as server:
            server.engine.facts = msgspec.structs.replace(
                server.engine.facts, max_model_tokens=max_model_tokens
            )
            client.prepare(server.url, home)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "CODEX_HOME": str(home),
                "TERM": "xterm",
                **client.environment(server.url),
            }
            ran = subprocess.run(
                client.arguments(server.url, home),
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            heard = server.engine.heard
            main = [h for h in heard if _find_shell(h.text) is not None]
            return {
                "code": ran.returncode,
                "out": ran.stdout[-4000:],
                "err": ran.stderr[-4000:],
                "num_requests": len(heard),
                "replies": [h.reply for h in main],
                "prompt_tokens": [h.num_prompt_tokens for h in main],
                "cached_tokens": [h.num_cached_tokens for h in main],
                "reply_tokens": [len(h.reply.encode()) for h in main],
                "faults": [str(fault) for fault in server.engine.faults],
            }


if __name__ == "__main__":
    size = int(sys.argv[2]) if len(sys.argv) > 2 else CONTEXT_TOKENS
    sys.stdout.write(json.dumps(run(sys.argv[1], size, *sys.argv[3:])) + "\n")
