# SPDX-License-Identifier: Apache-2.0
"""The client's end of the wire: the engine process, its sockets, and whether it is alive.

Without torch. Belongs to one event loop.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from tokenlight import wire
from tokenlight.base.clock import now_s
from tokenlight.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointNotFound,
    ConfigError,
    DownloadFailed,
    EngineDead,
    EngineError,
    EngineStalled,
    InternalError,
    TokenLightError,
    UnsupportedCheckpoint,
)
from tokenlight.base.log import event, get_log
from tokenlight.config import EngineConfig
from tokenlight.engine.process import EngineProcess, Orders

_log = get_log("engine")

_BEAT_LIMIT_S = 5.0
_LOST_AFTER_S = 3.5
_STOP_GRACE_S = 5.0
_LAST_WORDS_MS = 1000
_MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes, name included


class Link:
    """Owns the engine process and everything that leads to it; `close` gives all of it back."""

    def __init__(
        self, on_deltas: Callable[[list[wire.Delta]], None], on_dead: Callable[[str], None]
    ) -> None:
        """Call inside the event loop.

        Args:
            on_deltas: called with what each step did.
            on_dead: called once, with the reason, when the process has ended; all its messages came
                before.
        """
        self._on_deltas = on_deltas
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self._facts: wire.ModelFacts | None = None
        self._status: wire.Status | None = None
        self._last_heard_s = now_s()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._process: EngineProcess | None = None
        self._death: str | None = None
        self._is_closed = False
        self._folder = _private_folder()
        self._context = zmq.Context()
        self._outbox = self._bind(zmq.PUSH, "to-engine")
        self._inbox = self._bind(zmq.PULL, "from-engine")
        self._connections = self._inbox.get_monitor_socket(
            zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        )
        self._inbox_fd = self._inbox.FD
        self._loop.add_reader(self._inbox_fd, self.receive)

    async def start(self, config: EngineConfig, *, log_level: str) -> wire.ModelFacts:
        """Spawn the engine and wait for its first word. Raises what it could not start for."""
        self._process = EngineProcess(
            Orders(
                config=config,
                inbox=self._address("to-engine"),
                outbox=self._address("from-engine"),
                parent_pid=os.getpid(),
                log_level=log_level,
            )
        )
        self._process.exited.add_done_callback(self._die)
        await self._started
        assert self._facts is not None
        return self._facts

    @property
    def pid(self) -> int:
        """Of the engine process."""
        assert self._process is not None
        return self._process.pid

    def send(self, message: wire.ToEngine) -> None:
        """Never blocks. A message to an engine that has ended goes nowhere, heard of or not."""
        if self._death is None and not self._is_closed:
            # ZeroMQ waits for a peer where there is none any more.
            with suppress(zmq.Again):
                self._outbox.send(wire.encode(message), zmq.NOBLOCK)

    def status(self) -> wire.Status:
        """The latest heartbeat."""
        self.receive()
        assert self._status is not None
        return self._status

    def fault(self) -> EngineError | None:
        """Why a request sent now would not be served, or None."""
        self.receive()  # beats may be waiting behind a busy event loop
        if self._death is not None:
            return EngineDead(self._death)
        silent_s = now_s() - self._last_heard_s
        if silent_s > _BEAT_LIMIT_S:
            return EngineStalled(
                f"the engine process {self.pid} has not been heard of for {silent_s:.1f} s "
                f"(limit {_BEAT_LIMIT_S:g} s); it may be stopped or the machine overloaded"
            )
        status = self.status()
        if status.step_running_s > status.step_limit_s:
            return EngineStalled(
                f"the engine's current step has run for {status.step_running_s:.1f} s "
                f"(limit {status.step_limit_s:.1f} s, from its slowest step so far)"
            )
        return None

    async def end_if_silent(self) -> None:
        """For ever, look now and then: an engine that other ranks wait for may not hang."""
        period_s = _LOST_AFTER_S / 8
        while True:
            look_s = now_s()
            await asyncio.sleep(period_s)
            # What held this process up, a machine that was stopped, may have held up the engine.
            self._last_heard_s += max(0.0, now_s() - look_s - 2 * period_s)
            self.receive()
            silent_s = now_s() - self._last_heard_s
            if silent_s > _LOST_AFTER_S and self._process is not None:
                _log.error(event("rank_lost", rank=0, why=f"said nothing for {silent_s:.1f} s"))
                self._process.kill()
                return

    def receive(self) -> None:
        """Read all that is there: the file descriptor tells of new mail only once it is empty."""
        while not self._is_closed:
            try:
                data = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = wire.decode_from_engine(data)
            except msgspec.DecodeError as fault:  # of an engine of another version
                _log.error(event("bad_message", num_bytes=len(data), fault=fault))
            else:
                self._last_heard_s = now_s()  # whatever it says, it is there
                self._take(message)

    async def close(self) -> None:
        """End the process and give back sockets and folder. Once."""
        if self._process is not None:
            await self._process.stop(grace_s=_STOP_GRACE_S)
        self._is_closed = True
        self._loop.remove_reader(self._inbox_fd)
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, message: wire.FromEngine) -> None:
        match message:
            case wire.Deltas(deltas=deltas):
                self._on_deltas(deltas)
            case wire.Status():
                self._status = message
            case wire.Ready(facts=facts):
                self._facts = facts
            case wire.Failed(code=code, message=text):
                self._start_with(_startup_error(code, text))
        if self._facts is not None and self._status is not None:
            self._start_with(None)

    def _start_with(self, fault: TokenLightError | None) -> None:
        if self._started.done():
            return
        if fault is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(fault)

    def _hear_out(self) -> None:
        """Read until the engine's connections have ended: ZeroMQ's own thread may be behind."""
        num_open, wait_ms = 0, 0
        while self._connections.poll(wait_ms):
            told = recv_monitor_message(self._connections)["event"]
            num_open += 1 if told == zmq.EVENT_ACCEPTED else -1
            wait_ms = _LAST_WORDS_MS if num_open else 0
        self.receive()

    def _die(self, exited: asyncio.Future[int]) -> None:
        try:
            self._hear_out()
        except Exception:  # readers wait for what follows
            _log.exception(event("last_words_lost"))
        code = exited.result()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._death = (
            f"the engine process {self.pid} {how}; start the server again, its log says why"
        )
        self._start_with(EngineDead(self._death))
        self._on_dead(self._death)

    def _address(self, name: str) -> str:
        return f"ipc://{self._folder / name}"

    def _bind(self, kind: int, name: str) -> zmq.Socket[bytes]:
        """Unlimited queues: what can wait is bounded by the number of unfinished requests."""
        bound = self._context.socket(kind)
        bound.setsockopt(zmq.SNDHWM if kind == zmq.PUSH else zmq.RCVHWM, 0)
        bound.bind(self._address(name))
        return bound


def _private_folder() -> Path:
    """A new folder that only this user can enter, with a path short enough for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="tokenlight-"))
    if len(str(folder / "from-engine")) <= _MAX_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="tokenlight-", dir="/tmp"))


def _startup_error(code: str, text: str) -> TokenLightError:
    """The engine's own error, as the class that it was raised as."""
    return _STARTUP_ERRORS.get(code, InternalError)(text)


_STARTUP_ERRORS: dict[str, type[TokenLightError]] = {
    kind.code: kind
    for kind in (
        ConfigError,
        CheckpointError,
        CheckpointNotFound,
        CheckpointCorrupt,
        UnsupportedCheckpoint,
        DownloadFailed,
    )
}
