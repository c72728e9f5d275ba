# SPDX-License-Identifier: Apache-2.0
"""The other ranks as a launcher started them: watched, and ended by the leading one's end."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress

from tokenlight.base.log import event, get_log
from tokenlight.runner.ranks.lost import leave_at_once
from tokenlight.runner.ranks.watch import READY, Watch

_log = get_log("ranks")

_STOP_S = 3.0


class Guests:
    """Of the leading rank; `close` them once."""

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._connections = connections
        ends = {rank: each.fileno() for rank, each in connections.items()}
        self._watch = Watch(ends, _lose, beats=True)
        self.await_end = self._watch.await_end

    def wait_ready(self) -> None:
        """Until every rank has loaded its share; from then on they wait for tokens as well."""
        self._watch.wait_ready()
        self._watch.say(READY)

    def close(self) -> None:
        """Once they were told to end: give them time, then leave them to their launcher."""
        self._watch.join(_STOP_S)
        for each in self._connections.values():
            with suppress(OSError):  # whoever has ended has none
                each.shutdown(socket.SHUT_RDWR)
        self._watch.join()  # it writes by their numbers, which others may have next
        for each in self._connections.values():
            each.close()


def _lose(rank: int, why: str) -> None:
    """Their connections close with this process, and so they end."""
    _log.error(event("rank_lost", rank=rank, why=why))
    leave_at_once()
