# SPDX-License-Identifier: Apache-2.0
"""`python -m tokenlight.runner.ranks`: a rank that follows. Standard input: orders, then messages.

Its standard output says that it lives: a byte every half second.
"""

import os
import select
import signal
import sys
import threading
import traceback

import msgspec

from tokenlight.base import log
from tokenlight.base.leave import leave
from tokenlight.runner.ranks.channel import read_pipe
from tokenlight.runner.ranks.follower import follow_orders
from tokenlight.runner.ranks.lost import EXIT_LEADERLESS
from tokenlight.runner.ranks.orders import RankOrders
from tokenlight.runner.ranks.share import join, take_seat
from tokenlight.runner.ranks.watch import BEAT, BEAT_PERIOD_S, READY


def main() -> int:
    """Load this rank's share, say so, run what comes; ends with its input."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=RankOrders)
    log.configure(orders.log_level)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what it means is the parent's to decide
    threading.Thread(target=_beat, name="tokenlight-beat", daemon=True).start()
    seat = take_seat(orders.config, rank=orders.rank, store_port=orders.store_port)
    try:
        with join(seat, orders.device):
            follow_orders(orders, orders.rank, read_pipe(sys.stdin.buffer), _say_ready)
    except BaseException:
        traceback.print_exc()
        leave(1)  # at once: the others wait in a collective
    if orders.device != "cpu":
        leave(0)
    return 0


def _say_ready() -> None:
    os.write(sys.stdout.fileno(), READY)


def _beat() -> None:
    """Also ends the process when the leading rank is gone: it may be inside a collective."""
    leader = select.poll()
    leader.register(sys.stdin.fileno(), 0)  # nothing to read: only its end is told
    while not leader.poll(1000 * BEAT_PERIOD_S):
        try:
            os.write(sys.stdout.fileno(), BEAT)
        except BrokenPipeError:
            break
    os._exit(EXIT_LEADERLESS)


if __name__ == "__main__":
    sys.exit(main())
