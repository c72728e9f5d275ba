# SPDX-License-Identifier: Apache-2.0
"""What agents' clients really send: recorded requests, and sessions that grow from them.

The recordings hold shapes: each text stands there as its length, and words of our own take its
place.
"""

from __future__ import annotations

import copy
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CLIENTS = ("claude_code", "codex", "qwen_code", "mini_swe_agent")

_TEXT = re.compile(r"<(\d+) characters of text>")
_WORDS = re.findall(
    r"\w+",
    "a red fox runs over the hill and reads what it wrote in the log of yesterday then it looks "
    "for the file that nobody could open because its name was wrong since the first of May",
)


@dataclass(frozen=True, slots=True)
class Recorded:
    client: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def recorded(client: str) -> list[Recorded]:
    """A client's requests, in their order."""
    listed = json.loads((FOLDER / f"{client}.json").read_text())
    random_ = random.Random(client)
    return [
        Recorded(client, one["path"], one["headers"], _spoken(one["body"], random_))
        for one in listed
    ]


def every_recorded() -> list[Recorded]:
    return [one for path in sorted(FOLDER.glob("*.json")) for one in recorded(path.stem)]


def _spoken(value: Any, random_: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: _spoken(inner, random_) for key, inner in value.items()}
    if isinstance(value, list):
        return [_spoken(inner, random_) for inner in value]
    if isinstance(value, str) and (found := _TEXT.fullmatch(value)):
        return words(int(found[1]), random_)
    return value


def words(num_chars: int, random_: random.Random) -> str:
    text = ""
    while len(text) < num_chars:
        text += random_.choice(_WORDS) + random_.choice((" ", " ", " ", ", ", ".\n"))
    return text[:num_chars]


class Session:
    """A client's loop of call and result, as each of them goes on from its recorded request."""

    def __init__(self, client: str) -> None:
        """Begin as the recording does; streams are left out, they carry the same."""
        self._recorded = recorded(client)[0]
        self.path = self._recorded.path
        self.headers = self._recorded.headers
        self.body = copy.deepcopy(self._recorded.body)
        self.body.pop("stream", None)
        self.body.pop("stream_options", None)
        self._turn = 0

    def go_on(self, answer: dict[str, Any], result: str) -> None:
        """Take the answer and what its calls gave into the history, as the client would."""
        self._turn += 1
        getattr(self, f"_{self._recorded.client}")(answer, result)

    def _claude_code(self, answer: dict[str, Any], result: str) -> None:
        self._set_nonce()
        messages = self.body["messages"]
        messages.append({"role": "assistant", "content": answer["content"]})
        self._unmark(messages)
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": result}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        results[-1]["cache_control"] = {"type": "ephemeral"}
        messages.append({"role": "user", "content": results})

    def _set_nonce(self) -> None:
        """The billing line's checksum is another in each request."""
        head = self.body["system"][0]
        head["text"] = re.sub(r" cch=\w+;", "", head["text"]) + f" cch={self._turn:05x};"

    def _unmark(self, messages: list[dict[str, Any]]) -> None:
        """The rolling cache mark leaves the older results."""
        for message in messages:
            if isinstance(message["content"], list):
                for block in message["content"]:
                    if block["type"] == "tool_result":
                        block.pop("cache_control", None)

    def _codex(self, answer: dict[str, Any], result: str) -> None:
        for item in answer["output"]:
            sent = {key: value for key, value in item.items() if key != "status"}
            if sent["type"] == "reasoning":
                sent.pop("content", None)  # it comes back sealed
            self.body["input"].append(sent)
            if sent["type"] == "function_call":
                self.body["input"].append(
                    {"type": "function_call_output", "call_id": sent["call_id"], "output": result}
                )

    def _qwen_code(self, answer: dict[str, Any], result: str) -> None:
        self._chat(answer, [{"type": "text", "text": result}])

    def _mini_swe_agent(self, answer: dict[str, Any], result: str) -> None:
        self._chat(answer, result)

    def _chat(self, answer: dict[str, Any], result: object) -> None:
        said = answer["choices"][0]["message"]
        self.body["messages"].append({key: value for key, value in said.items() if value})
        for call in said["tool_calls"]:
            self.body["messages"].append(
                {"role": "tool", "tool_call_id": call["id"], "content": result}
            )

    def tool(self) -> tuple[str, dict[str, str]]:
        """A tool of the recorded request, and arguments for it."""
        return {
            "claude_code": ("Bash", {"command": "ls", "description": "List"}),
            "codex": ("exec_command", {"cmd": "ls"}),
            "qwen_code": ("run_shell_command", {"command": "ls", "description": "List"}),
            "mini_swe_agent": ("bash", {"command": "ls"}),
        }[self._recorded.client]
