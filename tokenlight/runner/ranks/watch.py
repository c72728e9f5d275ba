# SPDX-License-Identifier: Apache-2.0
"""Whether other ranks live: each says so twice a second, and one that ends or is silent is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from selectors import EVENT_READ, BaseSelector, DefaultSelector, SelectorKey

from tokenlight.base.clock import now_s

BEAT, READY = b".", b"r"
BEAT_PERIOD_S = 0.5
_LOST_AFTER_S = 3.0
_LOST_AFTER_LOADING_S = 60.0
"""While it loads, a rank may be silent for longer: nobody waits for its tokens."""


class Watch:
    """A thread that hears of other ranks until each of them has ended."""

    def __init__(
        self,
        ends: Mapping[int, int],
        lose: Callable[[int, str], None],
        *,
        beats: bool,
    ) -> None:
        """Begin.

        Args:
            ends: rank -> a file descriptor that it writes to; closed after `join` at the earliest.
            lose: is told of a rank that is lost, and why.
            beats: whether they hear of this rank as well, on the same descriptors.
        """
        self._ends = ends
        self._lose = lose
        self._beats = beats
        self._loading = set(ends)
        self._are_ready = threading.Event()
        self._is_end_awaited = False
        self._thread = threading.Thread(target=self._run, name="tokenlight-ranks", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """Until every rank has said that it has loaded its share."""
        self._are_ready.wait()

    def say(self, what: bytes) -> None:
        """To every rank that is still there."""
        for end in self._ends.values():
            with suppress(OSError):  # it has ended, or its host has: to be read next
                os.write(end, what)

    def await_end(self) -> None:
        """From now on nobody is lost who ends."""
        self._is_end_awaited = True

    def join(self, timeout_s: float | None = None) -> None:
        """Until every rank has ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        heard_s, beat_s = dict.fromkeys(self._ends, now_s()), now_s()
        with DefaultSelector() as selector:
            for rank, end in self._ends.items():
                selector.register(end, EVENT_READ, rank)
            while selector.get_map():
                if self._beats and now_s() >= beat_s:
                    self.say(BEAT)
                    beat_s = now_s() + BEAT_PERIOD_S
                for key, _ in _look(selector, heard_s):
                    said = _read(key.fd)
                    if not said:
                        selector.unregister(key.fd)
                        self._miss(key.data, "ended")
                    heard_s[key.data] = now_s()
                    if READY in said:
                        self._loading.discard(key.data)
                if not self._loading:
                    self._are_ready.set()
                limit_s = _LOST_AFTER_LOADING_S if self._loading else _LOST_AFTER_S
                for key in list(selector.get_map().values()):
                    if now_s() - heard_s[key.data] > limit_s:
                        self._miss(key.data, f"said nothing for {limit_s:g} s")

    def _miss(self, rank: int, why: str) -> None:
        if not self._is_end_awaited:
            self._lose(rank, why)


def _look(selector: BaseSelector, heard_s: dict[int, float]) -> list[tuple[SelectorKey, int]]:
    """Who has said something, within a beat.

    What held this process up for longer, a machine that was stopped, may have held up the others.
    """
    look_s = now_s()
    told = selector.select(BEAT_PERIOD_S)
    late_s = max(0.0, now_s() - look_s - 2 * BEAT_PERIOD_S)
    for rank in heard_s:
        heard_s[rank] += late_s
    return told


def _read(end: int) -> bytes:
    """Nothing: the other side has ended, or its host has."""
    try:
        return os.read(end, 4096)
    except OSError:
        return b""
