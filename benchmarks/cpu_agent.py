# SPDX-License-Identifier: Apache-2.0
"""An agent's conversation of ten turns over HTTP: how long until each turn's first token."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import httpx

from benchmarks import cpu_peer
from benchmarks.cpu_exact import TEXT
from benchmarks.served import serve

TURNS = 10
TURN_CHARACTERS = 2400  # about 600 tokens: 6K in ten turns
CONTEXT_TOKENS = 8192


def _turns() -> list[str]:
    text = TEXT.read_text()
    return [text[i * TURN_CHARACTERS : (i + 1) * TURN_CHARACTERS] for i in range(TURNS)]


def _first_tokens_s(url: str) -> list[float]:
    """Per turn: from the request to the first piece of the answer."""
    messages: list[dict[str, str]] = []
    times = []
    for turn in _turns():
        messages.append({"role": "user", "content": turn})
        body = {"messages": messages, "max_tokens": 16, "temperature": 0, "stream": True}
        start_s, first_s, answer = time.perf_counter(), None, ""
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json={"model": "any", **body}, timeout=600
        ) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                piece = httpx.Response(200, text=line[6:]).json()["choices"]
                content = piece[0]["delta"].get("content") if piece else None
                if content:
                    first_s = first_s or time.perf_counter()
                    answer += content
        times.append((first_s or time.perf_counter()) - start_s)
        messages.append({"role": "assistant", "content": answer or "Yes."})
    return times


def ttft_over_peer(model: Path, num_threads: int) -> float:
    """Median over the turns from the second on, ours over llama-server's."""
    with serve(str(model), "--served-model-name", "any") as ours:
        ours_s = _first_tokens_s(ours.url)
    with cpu_peer.server(model, num_threads, CONTEXT_TOKENS) as url:
        theirs_s = _first_tokens_s(url)
    print(f"turns, ms: ours {[round(1e3 * t) for t in ours_s]}")
    print(f"    llama-server {[round(1e3 * t) for t in theirs_s]}")
    return median(ours_s[1:]) / median(theirs_s[1:])
