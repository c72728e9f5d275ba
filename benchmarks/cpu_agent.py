# SPDX-License-Identifier: Apache-2.0
"""An agent's conversation of ten turns over HTTP: how long until each turn's first token.

Both servers run at once and answer each turn in turn, so that what slows the machine for a while
slows both. A turn counts by its best of several conversations, which no cache can confuse: of
one where a conversation takes a minute, as on a core or two beside other work.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from benchmarks import cpu_peer
from benchmarks.cpu_exact import TEXT
from benchmarks.served import Server, serve

ROUNDS = 3
BUDGET_S = 60
"""No further conversation begins after so long."""
TURNS = 10
TURN_CHARACTERS = 2400  # about 600 tokens: 6K in ten turns
ANSWER_TOKENS = 16
CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What a turn took until the first piece of its answer came."""

    wall_s: float
    cpu_s: float
    """Of all the server's processes; a busy machine moves it less than the clock's time."""

    def best(self, other: FirstToken) -> FirstToken:
        return FirstToken(min(self.wall_s, other.wall_s), min(self.cpu_s, other.cpu_s))


@dataclass
class Conversation:
    """One server's, which grows by its own answers."""

    server: Server
    messages: list[dict[str, str]] = field(default_factory=list)

    def turn(self, text: str) -> FirstToken:
        self.messages.append({"role": "user", "content": text})
        body = {
            "model": "any",
            "messages": self.messages,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "stream": True,
        }
        url = f"{self.server.url}/v1/chat/completions"
        answer, found = "", None
        cpu_s, start_s = self.server.cpu_s(), time.perf_counter()
        with httpx.stream("POST", url, json=body, timeout=600) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if piece := _content(line):
                    found = found or FirstToken(
                        time.perf_counter() - start_s, self.server.cpu_s() - cpu_s
                    )
                    answer += piece
        if found is None:
            raise RuntimeError(f"{self.server.url} answered a turn with no text")
        self.messages.append({"role": "assistant", "content": answer})
        return found


def _content(line: str) -> str:
    """The text that a line of an event stream brings."""
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line[6:])["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""


def _round(ours: Server, peer: Server, number: int) -> list[tuple[FirstToken, FirstToken]]:
    """One conversation with each: first tokens of every turn, ours and the peer's."""
    text, both = TEXT.read_text(), (Conversation(ours), Conversation(peer))
    turns = []
    for index in range(TURNS):
        said = text[index * TURN_CHARACTERS : (index + 1) * TURN_CHARACTERS]
        if index == 0:
            said = f"Conversation {number}.\n{said}"  # shares no prefix with an earlier one
        first, second = (each.turn(said) for each in both)
        turns.append((first, second))
    return turns


def ttft_over_peer(model: Path, num_threads: int) -> float:
    """Median over the turns from the second on of ours over llama-server's."""
    with (
        serve(str(model), "--served-model-name", "any", "--num-threads", str(num_threads)) as ours,
        cpu_peer.server(model, num_threads, CONTEXT_TOKENS) as peer,
    ):
        start_s = time.perf_counter()
        best = _round(ours, peer, 0)
        num_rounds = 1
        while num_rounds < ROUNDS and time.perf_counter() - start_s < BUDGET_S:
            found = _round(ours, peer, num_rounds)
            best = [(a.best(c), b.best(d)) for (a, b), (c, d) in zip(best, found, strict=True)]
            num_rounds += 1
    print(f"turns, ms, best of {num_rounds}: ours {[round(1e3 * ours.wall_s) for ours, _ in best]}")
    print(f"    llama-server {[round(1e3 * peer.wall_s) for _, peer in best]}")
    cpu = median(ours.cpu_s / peer.cpu_s for ours, peer in best[1:])
    print(f"    by CPU time {cpu:.3f} of llama-server's", flush=True)
    return median(ours.wall_s / peer.wall_s for ours, peer in best[1:])
