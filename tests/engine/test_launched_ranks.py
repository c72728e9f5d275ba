# SPDX-License-Identifier: Apache-2.0
"""Ranks that a launcher starts, each as on a host of its own, and what is left when one is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from benchmarks.served import free_port
from tests.engine.rank_processes import wait_until_gone
from tests.models.tiny import write_tiny_llama
from tests.processes import children

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

STOPS_S = 15.0  # five on a machine that does nothing else
CLIENTS_S = 2.0  # that the server takes to tell them, once its engine is gone
ASKED = {"prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0}


def by_variables(rank: int, port: int) -> tuple[list[str], dict[str, str]]:
    """As Slurm's or Kubernetes' scripts set them."""
    who = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    return [sys.executable, "-m", "tokenlight"], {**who, **where}


def by_torchrun(rank: int, port: int) -> tuple[list[str], dict[str, str]]:
    """An agent per host."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    where = [f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}"]
    return [*agent, *where, "-m", "tokenlight"], {}


def by_itself(rank: int, port: int) -> tuple[list[str], dict[str, str]]:
    """One command, which starts the other rank."""
    return [sys.executable, "-m", "tokenlight"], {}


class Hosts:
    """A rank on each, or all on one."""

    def __init__(self, launched: list[subprocess.Popen[str]]) -> None:
        self.launched = launched
        lines = launched[0].stdout
        assert lines is not None
        self.url = next(line.split()[1] for line in lines if line.strip().startswith("url"))
        self.processes = [family(each.pid) for each in launched]

    @property
    def pids(self) -> list[int]:
        return [pid for host in self.processes for pid in host]


def family(pid: int) -> list[int]:
    """The process and all that it started, the last one last."""
    return [pid, *(each for child in children(pid) for each in family(child))]


@contextmanager
def hosts(model: Path, log: Path, launch, *, num_hosts: int = 2) -> Iterator[Hosts]:
    port, launched = free_port(), []
    asked = ["serve", str(model), "--tensor-parallel-size", "2", "--port", "0"]
    told: list[int] = []
    try:
        with log.open("w") as lines:
            for rank in range(num_hosts):
                command, variables = launch(rank, port)
                launched.append(
                    subprocess.Popen(
                        [*command, *asked],
                        env={**os.environ, **variables},
                        stdout=subprocess.PIPE,
                        stderr=lines,
                        text=True,
                    )
                )
        started = Hosts(launched)
        told = started.pids
        yield started
    finally:
        for each in launched:
            each.kill()
        for pid in told:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in launched:
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


class Clients:
    """Ask for ever, until they are told of a fault."""

    def __init__(self, url: str, num_clients: int = 4) -> None:
        self._url = url
        self.faults: list[object] = []
        self._is_answered = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(num_clients)]
        for thread in self._threads:
            thread.start()
        assert self._is_answered.wait(60)

    def _ask(self) -> None:
        try:
            while (
                answer := httpx.post(f"{self._url}/completions", json=ASKED, timeout=60)
            ).is_success:
                self._is_answered.set()
            self.faults.append(answer.json()["error"]["code"])
        except httpx.HTTPError as fault:
            self.faults.append(type(fault))

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)
            assert not thread.is_alive(), "a client waits"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("ranks") / "tiny.gguf", heads=4, kv_heads=2)


def test_a_rank_that_is_killed_while_nobody_asks_ends_all(model: Path, tmp_path: Path):
    with hosts(model, tmp_path / "log", by_variables) as started:
        os.kill(started.processes[1][-1], signal.SIGKILL)
        wait_until_gone(started.pids, STOPS_S + CLIENTS_S)
        assert started.launched[0].wait() == 70
    assert "rank_lost rank=1 why=ended" in (tmp_path / "log").read_text()


def test_a_rank_that_is_killed_under_load_ends_the_command_that_started_it(
    model: Path, tmp_path: Path
):
    with hosts(model, tmp_path / "log", by_itself, num_hosts=1) as started:
        clients = Clients(started.url)
        assert len(started.pids) == 3, "a server, its engine, the other rank"
        os.kill(started.pids[-1], signal.SIGKILL)
        wait_until_gone(started.pids[1:], STOPS_S)
        clients.join(STOPS_S)
        assert [*{*clients.faults}] == ["engine_dead"]
        assert started.launched[0].wait(20) == 70


@pytest.mark.parametrize(
    ("lost_rank", "launch"),
    [(1, by_torchrun), (0, by_variables)],
    ids=["torchrun-1", "variables-0"],
)
def test_a_rank_that_hangs_under_load_ends_all(model: Path, tmp_path: Path, lost_rank: int, launch):
    with hosts(model, tmp_path / "log", launch) as started:
        clients = Clients(started.url)
        hung = started.processes[lost_rank][-1]
        os.kill(hung, signal.SIGSTOP)
        engine, follower = (host[-1] for host in started.processes)
        # The serving rank is ended even where it hangs: clients wait for it.
        wait_until_gone([engine] if lost_rank else [engine, follower], STOPS_S)
        clients.join(STOPS_S)
        assert [*{*clients.faults}] == ["engine_dead"]
        assert started.launched[0].wait(20) != 0
        with suppress(ProcessLookupError):
            os.kill(hung, signal.SIGCONT)
        wait_until_gone(started.pids, 20)
        assert started.launched[1].wait() != 0
    assert f"rank_lost rank={lost_rank} why" in (tmp_path / "log").read_text()
