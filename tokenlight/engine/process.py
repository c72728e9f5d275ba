# SPDX-License-Identifier: Apache-2.0
"""The engine as a child process: spawn, watch, stop. Without torch.

The child reads its orders from the first line of its standard input, and ends itself when that pipe
closes: so it never outlives this process, however this process ends.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading

import msgspec

from tokenlight.base.env import child_environ
from tokenlight.config import EngineConfig

ENGINE_MODULE = "tokenlight.engine"
"""What the child runs."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The first line on the engine's standard input, as JSON."""

    config: EngineConfig
    inbox: str
    """ZeroMQ address that the engine reads from."""
    outbox: str
    """ZeroMQ address that the engine sends to."""
    parent_pid: int
    log_level: str


class EngineProcess:
    """One running engine, owned by the event loop that spawned it: `stop` it once."""

    def __init__(self, orders: Orders) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """The exit code, once it has ended; negative: the signal."""
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", ENGINE_MODULE],
            stdin=subprocess.PIPE,
            # The child imports what this process imports, whatever the working directory holds.
            env=child_environ(PYTHONPATH=os.pathsep.join(p or os.getcwd() for p in sys.path)),
        )
        # A thread and not the loop's own child watcher: any event loop, on any thread, will do.
        threading.Thread(target=self._watch, name="tokenlight-engine-watch", daemon=True).start()
        assert self._popen.stdin is not None
        self._stdin = self._popen.stdin
        with contextlib.suppress(BrokenPipeError):  # it ended before it read: `exited` tells
            self._stdin.write(msgspec.json.encode(orders) + b"\n")
            self._stdin.flush()  # and stays open: its end is the engine's sign that we are gone

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """End it at once, also where it was stopped by a signal. Harmless when it has ended."""
        self._popen.kill()

    async def stop(self, *, grace_s: float) -> None:
        """End it: SIGTERM, at most `grace_s` seconds, then SIGKILL. Harmless when it has ended."""
        self._popen.terminate()
        await asyncio.wait((self.exited,), timeout=grace_s)
        if not self.exited.done():
            self._popen.kill()
            await asyncio.wait((self.exited,))
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def _watch(self) -> None:
        code = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self.exited.set_result, code)
