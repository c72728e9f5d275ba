# SPDX-License-Identifier: Apache-2.0
"""A `tokenlight serve` of the bench's own, and what /proc says of its processes."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Generation:
    """One streamed completion, timed by its client."""

    text: str
    num_tokens: int
    sent_s: float
    token_times_s: list[float] = field(default_factory=list)

    @property
    def time_to_first_token_s(self) -> float:
        return self.token_times_s[0] - self.sent_s

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens after the first, over the time they took."""
        return (self.num_tokens - 1) / (self.token_times_s[-1] - self.token_times_s[0])


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it listens, and its processes."""

    url: str
    process: subprocess.Popen[bytes]
    ready_s: float

    def pids(self) -> list[int]:
        """The server's process and all below it."""
        found, frontier = [], [self.process.pid]
        while frontier:
            pid = frontier.pop()
            found.append(pid)
            for children in _of_threads(pid, "children"):
                frontier += map(int, children.split())
        return found

    def rss_bytes(self) -> int:
        """Resident memory of all processes; pages that two of them share count twice."""
        pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU time that all processes have used so far."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS_PER_S

    def complete(
        self, prompt: str | list[int], max_tokens: int, *, ignore_eos: bool = False
    ) -> Generation:
        """Stream one greedy completion from the server."""
        body = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text, times, num_tokens = [], [], 0
        sent_s = time.perf_counter()
        with httpx.stream("POST", f"{self.url}/v1/completions", json=body, timeout=600) as answer:
            if answer.status_code != 200:
                raise RuntimeError(answer.read().decode())
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                if chunk["choices"]:
                    times.append(time.perf_counter())
                    text.append(chunk["choices"][0]["text"])
                if chunk.get("usage"):
                    num_tokens = chunk["usage"]["completion_tokens"]
        return Generation("".join(text), num_tokens, sent_s, times)


def thread_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process that there are, to the nanosecond."""
    return sum(int(schedule.split()[0]) for schedule in _of_threads(pid, "schedstat")) / 1e9


def _of_threads(pid: int, name: str) -> Iterator[str]:
    """A file of each thread; one that ends meanwhile has none."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                yield Path(f"/proc/{pid}/task/{thread}/{name}").read_text()


def free_port() -> int:
    """A port that is free, of those that the kernel gives to nobody who does not ask for it."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first_given = int(given.read_text().split()[0]) if given.exists() else 32768
    for port in random.sample(range(10_000, max(first_given, 20_000)), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("a hundred ports are in use")


@contextmanager
def serve(*args: str, timeout_s: float = 120, module: str = "tokenlight") -> Iterator[Server]:
    """Start `tokenlight serve ARGS` on a free port, wait for /health, and end it by SIGTERM.

    Args:
        args: what follows `serve`.
        timeout_s: for getting ready.
        module: what is run in tokenlight's place.

    Raises:
        RuntimeError: the server ended or was not ready in time.
    """
    port = free_port()
    command = [sys.executable, "-m", module, "serve", *args, "--port", str(port)]
    start_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
            if time.perf_counter() - start_s > timeout_s:
                raise RuntimeError(f"not ready after {timeout_s} s")
            try:
                if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.01)
        yield Server(url, process, time.perf_counter() - start_s)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
