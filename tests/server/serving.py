# SPDX-License-Identifier: Apache-2.0
"""`tokenlight serve` as a process of the test's own: started, watched, ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from openai import OpenAI

from tests.processes import children, is_running, wait_until

ROOT = Path(__file__).parents[2]


class Serving:
    """A running `tokenlight serve`."""

    def __init__(self, *argv: str, log: Path) -> None:
        self._log = log
        self.clients: list[OpenAI] = []
        """To be closed, as in `running.py`."""
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tokenlight", "serve", *argv, "--port", "0"],
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_ready(self, timeout_s: float = 200) -> str:
        """The URL, once the banner shows it."""
        wait_until(
            lambda: "stop     Ctrl-C" in self.said or self.process.poll() is not None, timeout_s
        )
        found = re.search(r"^  url +(http\S+)/v1", self.said, re.MULTILINE)
        assert found, self.said
        self.url = found.group(1)
        return self.url

    def engine_pid(self) -> int:
        pids = children(self.process.pid)
        assert len(pids) == 1, f"one engine process is expected, found {pids}"
        return pids[0]

    def client(self, **options: object) -> OpenAI:
        settings = {"api_key": "unused", "max_retries": 0, "timeout": 60, **options}
        self.clients.append(OpenAI(base_url=f"{self.url}/v1", **settings))
        return self.clients[-1]

    def metric(self, name: str) -> float:
        """A sample by its name, or by its name and first labels: `name{label="x"`."""
        text = httpx.get(f"{self.url}/metrics").text
        start = name if "{" in name else f"{name}{{"
        found = re.search(rf"^{re.escape(start)}[^}}]*\}} (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not in /metrics"
        return float(found.group(1))

    def end(self, signal_number: int = signal.SIGTERM, timeout_s: float = 30) -> int:
        """Send a signal, unless it has ended; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(timeout_s)


@contextmanager
def serving(*argv: str, log: Path) -> Iterator[Serving]:
    """Serve until the block ends; nothing is left behind, whatever the block did."""
    made = Serving(*argv, log=log)
    pids = []
    try:
        made.wait_ready()
        pids = children(made.process.pid)
        yield made
    finally:
        for client in made.clients:
            client.close()
        if made.process.poll() is None:
            made.process.terminate()
            try:
                made.process.wait(20)
            except subprocess.TimeoutExpired:
                made.process.kill()
                made.process.wait()
        for pid in pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
