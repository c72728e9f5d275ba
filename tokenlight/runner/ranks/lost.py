# SPDX-License-Identifier: Apache-2.0
"""How the leading rank ends when ranks are lost to each other: at once, and all with it.

The others end when their input does, clients are told by whoever watches this process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tokenlight.base.leave import leave
from tokenlight.base.log import event, get_log

_log = get_log("ranks")

EXIT_LEADERLESS, EXIT_RANK_LOST = 3, 4


def leave_at_once() -> NoReturn:
    """The loop may be inside a collective that never ends, and torch would wait for that."""
    leave(EXIT_RANK_LOST)


@contextmanager
def in_step() -> Iterator[None]:
    """What all ranks were told to do: where it fails on this one, the others wait inside it.

    To go on with another step would pair its collectives with those that the others are in.
    """
    try:
        yield
    except Exception:
        _log.exception(event("rank_lost", rank=0, why="failed within a step"))
        leave_at_once()
