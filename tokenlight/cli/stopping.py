# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and Ctrl-C: the first asks, the second insists."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` on the first signal; end this process at once on the second.

    The engine process ends by itself when this one is gone.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        print("stopping; a second signal ends at once", file=sys.stderr, flush=True)
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)


@contextmanager
def ends_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM unwinds the stack, so that children are ended and files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
