# SPDX-License-Identifier: Apache-2.0
"""What serving costs the API process, its engine being a script: CPU time, not the clock's.

`python -m benchmarks.front_served MODEL ...` is `tokenlight serve` with that engine.
"""

from __future__ import annotations

import asyncio
import copy
import http.client
import json
import random
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.front_engine import TOKENS_PER_S
from benchmarks.served import Server, serve, thread_cpu_s
from tests.recorded.requests import recorded, words
from tokenlight.engine import process

NUM_STREAMS = 64
_MEASURED_S = 15.0
_WARM_S = 4.0
_NUM_FIRST = 40
_ROUNDS = 4


def measure(model: Path) -> tuple[float, float]:
    """Cores that 64 streams take; milliseconds of CPU to a first token."""
    arguments = (str(model), "--max-waiting", "256")
    with serve(*arguments, module="benchmarks.front_served") as server:
        before_ms = _first_token_ms(server)
        cores = asyncio.run(_cores(server))
        # Others on the machine only add: the least is closest to what it costs.
        return cores, min(before_ms, _first_token_ms(server))


# ---- a first token -----------------------------------------------------------------------------


def _first_token_ms(server: Server) -> float:
    bodies = {"a question": _question, "an agent's next turn": _agent_turn}
    found = {
        name: min(_first_of(server, make) for _ in range(_ROUNDS)) for name, make in bodies.items()
    }
    for name, cost_ms in found.items():
        print(f"CPU to the first token of {name}: {cost_ms:.2f} ms")
    return found["a question"]


def _question(number: int) -> dict[str, object]:
    said = {"role": "user", "content": f"What is {number} and {number}? Say it in one word."}
    return {"messages": [said], "max_tokens": 1, "stream": True}


def _agent_turn(number: int) -> dict[str, object]:
    body = copy.deepcopy(recorded("qwen_code")[0].body)
    for turn in range(number):
        body["messages"].append({"role": "assistant", "content": f"That was step {turn}."})
        body["messages"].append({"role": "user", "content": f"{turn} files were found. Go on."})
    return {**body, "max_tokens": 1}


def _first_of(server: Server, make: object) -> float:
    host, port = server.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    costs_s = []
    for number in range(_NUM_FIRST):
        body = json.dumps({**make(number), "model": None})
        before_s = thread_cpu_s(server.process.pid)
        connection.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        data = answer.read()
        costs_s.append(thread_cpu_s(server.process.pid) - before_s)
        assert answer.status == 200, data
        assert data.endswith(b"data: [DONE]\n\n")
    return median(costs_s[_NUM_FIRST // 4 :]) * 1e3


# ---- streams -----------------------------------------------------------------------------------


async def _cores(server: Server) -> float:
    host, port = server.url.removeprefix("http://").split(":")
    tokens = [0] * NUM_STREAMS
    num_tokens = int((_WARM_S + _MEASURED_S + 10) * TOKENS_PER_S)
    readers = [
        asyncio.create_task(_read(host, int(port), place, num_tokens, tokens))
        for place in range(NUM_STREAMS)
    ]
    await asyncio.sleep(_WARM_S)
    start_s, before_s, said = time.monotonic(), thread_cpu_s(server.process.pid), sum(tokens)
    await asyncio.sleep(_MEASURED_S)
    passed_s = time.monotonic() - start_s
    used_s, said = thread_cpu_s(server.process.pid) - before_s, sum(tokens) - said
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    per_token_us = used_s / said * 1e6
    print(f"{NUM_STREAMS} streams: {said / passed_s:.0f} events/s, {used_s / passed_s:.2f} cores, "
          f"{per_token_us:.0f} us an event")  # fmt: skip
    # On a machine that is too busy for the pace, the pace is what is asked for all the same.
    return per_token_us / 1e6 * NUM_STREAMS * TOKENS_PER_S


async def _read(host: str, port: int, place: int, num_tokens: int, tokens: list[int]) -> None:
    """One client; it counts events, and parses nothing that it need not."""
    said = {"role": "user", "content": words(400, random.Random(place))}
    body = {"messages": [said], "max_tokens": num_tokens, "stream": True}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(data), data)
    )
    try:
        while chunk := await reader.read(1 << 16):
            tokens[place] += chunk.count(b"data: {")
    finally:
        writer.close()


def main() -> int:
    """The server's side."""
    from tokenlight.cli import main as command

    process.ENGINE_MODULE = "benchmarks.front_engine"
    return command(["serve", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
