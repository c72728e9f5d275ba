# SPDX-License-Identifier: Apache-2.0
"""A rank that a launcher started: torchrun, or whatever sets its environment variables."""

import os
import socket

import torch.distributed as dist

from tokenlight.base.leave import leave
from tokenlight.base.log import event, get_log
from tokenlight.runner.ranks.channel import read_group
from tokenlight.runner.ranks.devices import device_of_launched
from tokenlight.runner.ranks.follower import follow_orders
from tokenlight.runner.ranks.lost import EXIT_LEADERLESS
from tokenlight.runner.ranks.meeting import come_in
from tokenlight.runner.ranks.orders import unpack_orders
from tokenlight.runner.ranks.share import join
from tokenlight.runner.ranks.watch import READY, Watch

_log = get_log("ranks")


def follow_leader() -> None:
    """Meet the others, load this rank's share, run what the leading rank says until it ends.

    Raises:
        ConfigError: what the leading rank was asked for cannot be had on this machine.
        CheckpointError: the model's files cannot be used here.
        EngineDead: the leading rank cannot be reached.
    """
    with join(None, device_of_launched()):
        rank, messages = dist.get_rank(), read_group()
        orders = unpack_orders(next(messages))
        leader = come_in(orders.door, orders.key, rank)
        watch = Watch({0: leader.fileno()}, _lose, beats=True)

        def say_ready() -> None:
            _log.info(event("rank_ready", rank=rank))
            watch.say(READY)

        follow_orders(orders, rank, messages, say_ready)
        watch.await_end()
        leader.shutdown(socket.SHUT_WR)
        watch.join()
        leader.close()
    if orders.device != "cpu":
        leave(0)


def _lose(rank: int, why: str) -> None:
    """At once: this rank may be inside a collective that never ends."""
    _log.error(event("rank_lost", rank=rank, why=why))
    os._exit(EXIT_LEADERLESS)
