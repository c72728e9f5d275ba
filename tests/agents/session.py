# SPDX-License-Identifier: Apache-2.0
"""Run one agent against a scripted server; `python -m tests.agents.session NAME` in a bare network.

The model that the script plays calls the agent's shell tool twice, then says that it is done. It
looks only at the prompt it is given: the tool must be described there, and each result be there, in
order, before it goes on. What came of it is printed as one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.agents.clients import CLIENTS, Client
from tests.server.scripted_engine import CONTEXT_TOKENS, call, scripted

COMMANDS = ("echo first-$((40 + 2))", "echo second-$((50 + 8))")
OUTPUTS = ("first-42", "second-58")
DONE = "Both commands have been run."
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


def _find_shell(prompt: str) -> dict | None:
    if "<tools>\n" not in prompt:
        return None
    listed = prompt[prompt.index("<tools>\n") + 8 : prompt.index("\n</tools>")]
    tools = [json.loads(line)["function"] for line in listed.splitlines()]
    return next((tool for tool in tools if tool["name"] in _SHELLS), None)


def _arguments(shell: dict, command: str) -> dict:
    """The command, and something for whatever else the tool requires."""
    known = shell["parameters"].get("properties", {})
    name = "command" if "command" in known else "cmd"
    made: dict[str, object] = {name: command}
    for required in shell["parameters"].get("required", []):
        kind = known.get(required, {}).get("type")
        made.setdefault(required, {"boolean": False, "number": 1, "array": []}.get(kind, "x"))
    return made


def run(name: str, max_model_tokens: int = CONTEXT_TOKENS) -> dict:
    client = CLIENTS[name]
    with tempfile.TemporaryDirectory() as home_name:
        home = Path(home_name)
        work = home / "work"
        work.mkdir()
        with scripted(lambda prompt: reply(client, prompt), log_level="warning") as server:
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
    sys.stdout.write(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:]))) + "\n")
