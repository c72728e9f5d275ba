# SPDX-License-Identifier: Apache-2.0
"""A rank that a launcher started: torchrun, or whatever sets its environment variables."""

import torch.distributed as dist

from tokenlight.base.leave import leave
from tokenlight.base.log import event, get_log
from tokenlight.runner.ranks.channel import read_group
from tokenlight.runner.ranks.devices import device_of_launched
from tokenlight.runner.ranks.follower import follow_orders
from tokenlight.runner.ranks.orders import unpack_orders
from tokenlight.runner.ranks.share import join, wait_for_all

_log = get_log("ranks")


def follow_leader() -> None:
    """Meet the others, load this rank's share, run what the leading rank says until it ends.

    Raises:
        ConfigError: what the leading rank was asked for cannot be had on this machine.
        CheckpointError: the model's files cannot be used here.
    """
    with join(None, device_of_launched()):
        rank, messages = dist.get_rank(), read_group()
        orders = unpack_orders(next(messages))

        def say_ready() -> None:
            _log.info(event("rank_ready", rank=rank))
            wait_for_all()

        follow_orders(orders, rank, messages, say_ready)
    if orders.device != "cpu":
        leave(0)
