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
import threading
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import BinaryIO, cast

import msgspec

from tokenlight.base.clock import now_s
from tokenlight.base.env import child_environ
from tokenlight.base.errors import EngineDead
from tokenlight.base.log import event, get_log
from tokenlight.runner.ranks.channel import PipeChannel
from tokenlight.runner.ranks.lost import leave_at_once
from tokenlight.runner.ranks.orders import RankOrders

_log = get_log("ranks")

MODULE = "tokenlight.runner.ranks"
"""What a child runs."""

BEAT, READY = b".", b"r"
BEAT_PERIOD_S = 0.5
_LOST_AFTER_S = 3.0
_LOST_AFTER_LOADING_S = 60.0
"""While it loads, a rank may be silent for longer: nobody waits for its tokens."""
_STOP_S = 3.0


class Followers:
    """Running ranks, owned by the leading one: `close` them once."""

    def __init__(self, orders: Mapping[int, RankOrders]) -> None:
        self._children = {rank: _spawn(each) for rank, each in orders.items()}
        self._are_ready = threading.Event()
        self._is_closing = False
        self.channel = PipeChannel([_pipe(child.stdin) for child in self._children.values()])
        self._watch = threading.Thread(target=self._run, name="tokenlight-ranks", daemon=True)
        self._watch.start()

    def wait_ready(self) -> None:
        """Until every rank has loaded its share."""
        self._are_ready.wait()

    def close(self) -> None:
        """End them: their input ends, and what is left after a grace period is killed."""
        self._is_closing = True
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

    def _run(self) -> None:
        heard_s = dict.fromkeys(self._children, now_s())
        waited_for = set(self._children)
        with DefaultSelector() as selector:
            for rank, child in self._children.items():
                selector.register(_pipe(child.stdout), EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select(BEAT_PERIOD_S):
                    said = os.read(key.fd, 4096)
                    if not said:
                        self._lose(key.data, "ended")
                        selector.unregister(key.fileobj)
                    heard_s[key.data] = now_s()
                    if READY in said:
                        waited_for.discard(key.data)
                if not waited_for:
                    self._are_ready.set()
                limit_s = _LOST_AFTER_LOADING_S if waited_for else _LOST_AFTER_S
                for rank in (key.data for key in selector.get_map().values()):
                    if now_s() - heard_s[rank] > limit_s:
                        self._lose(rank, f"said nothing for {limit_s:g} s")

    def _lose(self, rank: int, why: str) -> None:
        if self._is_closing:
            return
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
