# SPDX-License-Identifier: Apache-2.0
"""The other ranks as child processes of the leading one: spawn, watch, stop.

A rank that ends or hangs would leave the others inside a collective for ever, so its loss is the
loss of all: they are killed, and so is this process.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO, cast

import msgspec

from tokenlight.base.clock import now_s
from tokenlight.base.env import child_environ
from tokenlight.base.errors import EngineDead
from tokenlight.base.log import event, get_log
from tokenlight.runner.ranks.channel import PipeChannel
from tokenlight.runner.ranks.lost import leave_at_once
from tokenlight.runner.ranks.orders import RankOrders
from tokenlight.runner.ranks.watch import Watch

_log = get_log("ranks")

MODULE = "tokenlight.runner.ranks"
"""What a child runs."""

_STOP_S = 3.0


class Followers:
    """Running ranks, owned by the leading one: `close` them once."""

    def __init__(self, orders: Mapping[int, RankOrders]) -> None:
        self._children = {rank: _spawn(each) for rank, each in orders.items()}
        self.channel = PipeChannel([_pipe(child.stdin) for child in self._children.values()])
        self._watch = Watch(
            {rank: _pipe(child.stdout).fileno() for rank, child in self._children.items()},
            self._lose,
            beats=False,
        )
        self.wait_ready = self._watch.wait_ready

    def close(self) -> None:
        """End them: their input ends, and what is left after a grace period is killed."""
        self._watch.await_end()
        for child in self._children.values():
            with suppress(BrokenPipeError):
                _pipe(child.stdin).close()
        end_s = now_s() + _STOP_S
        for child in self._children.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, end_s - now_s()))
        self._kill()
        for child in self._children.values():
            child.wait()
        self._watch.join()

    def _lose(self, rank: int, why: str) -> None:
        _log.error(event("rank_lost", rank=rank, why=why, code=self._children[rank].poll()))
        self._kill()
        # Not after the killed are gone: the loop may hear from a broken connection meanwhile.
        leave_at_once()

    def _kill(self) -> None:
        for child in self._children.values():
            child.kill()


def _spawn(orders: RankOrders) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # The child imports what this process imports, whatever the working directory holds.
        env=child_environ(PYTHONPATH=os.pathsep.join(p or os.getcwd() for p in sys.path)),
    )
    try:
        _pipe(child.stdin).write(msgspec.json.encode(orders) + b"\n")
        _pipe(child.stdin).flush()
    except BrokenPipeError:
        raise EngineDead(f"rank {orders.rank} ended before it read its orders") from None
    return child


def _pipe(end: object) -> BinaryIO:
    assert isinstance(end, io.IOBase)
    return cast("BinaryIO", end)
