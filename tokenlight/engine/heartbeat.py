# SPDX-License-Identifier: Apache-2.0
"""The thread that beats each second, and ends the engine when the parent process is gone.

It runs beside long steps (kernels release the GIL), so a busy engine beats and a stopped one does
not.
"""

import contextlib
import os
import select
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import zmq

from tokenlight import wire
from tokenlight.base.clock import now_s
from tokenlight.control import Counts
from tokenlight.engine.mail import connect_outbox
from tokenlight.engine.process import Orders

_PERIOD_S = 1.0
_LEAST_STEP_LIMIT_S = 8.0
_STEP_LIMIT_FACTOR = 10
_EXIT_ORPHANED = 3


@dataclass(slots=True)
class Board:
    """The loop writes, the heartbeat reads; each field is replaced whole, so no lock."""

    stats: Counts
    full_step_s: float
    """What a step of as many tokens as are allowed may take, as judged before the first one."""
    slowest_step_s: float = 0.0
    step_started_s: float | None = None
    num_failed: int = 0

    def status(self) -> wire.Status:
        stats, started_s = self.stats, self.step_started_s
        return wire.Status(
            num_steps=stats.num_steps,
            step_running_s=0.0 if started_s is None else now_s() - started_s,
            step_limit_s=max(
                _LEAST_STEP_LIMIT_S, self.full_step_s, _STEP_LIMIT_FACTOR * self.slowest_step_s
            ),
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_free_blocks=stats.num_free_blocks,
            num_blocks=stats.num_blocks,
            num_cached_blocks=stats.num_cached_blocks,
            num_prompt_tokens=stats.num_prompt_tokens,
            num_cached_tokens=stats.num_cached_tokens,
            num_sampled_tokens=stats.num_sampled_tokens,
            num_preemptions=stats.num_preemptions,
            num_failed=self.num_failed,
        )


class Heartbeat(threading.Thread):
    """Watches the pipe to the parent from the start, and beats once there is a board to read.

    It has a socket of its own: sockets are not shared between threads.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], orders: Orders) -> None:
        super().__init__(name="tokenlight-heartbeat", daemon=True)
        self._context = context
        self._orders = orders
        self._board: Board | None = None
        self._is_stopping = False
        self._woken, self._waker = os.pipe()

    def begin(self, board: Board) -> None:
        """Beat now, and each second from now on."""
        self._board = board
        os.write(self._waker, b"x")

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping = True
        os.write(self._waker, b"x")
        self.join()
        os.close(self._woken)
        os.close(self._waker)

    def run(self) -> None:
        outbox = connect_outbox(self._context, self._orders.outbox)
        parent = sys.stdin.fileno()
        while not self._is_stopping:
            if self._board is not None:
                outbox.send(wire.encode(self._board.status()))
            readable, _, _ = select.select([parent, self._woken], [], [], _PERIOD_S)
            if self._woken in readable:
                os.read(self._woken, 4096)
            if (parent in readable and not os.read(parent, 4096)) or self._is_orphan():
                self._leave()
        outbox.close(linger=0)

    def _is_orphan(self) -> bool:
        """A forked sibling may hold the pipe open after the parent's death, but ids do not lie."""
        return os.getppid() != self._orders.parent_pid

    def _leave(self) -> None:
        """At once: the loop may be inside a long step, and nobody waits for what it computes."""
        sockets = [
            Path(a.removeprefix("ipc://")) for a in (self._orders.inbox, self._orders.outbox)
        ]
        for path in sockets:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else keeps something there
            sockets[0].parent.rmdir()
        os._exit(_EXIT_ORPHANED)
