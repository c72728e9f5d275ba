# SPDX-License-Identifier: Apache-2.0
"""The leading rank's hold on the others, from their start to their end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from tokenlight.base.env import read_env
from tokenlight.base.errors import ConfigError
from tokenlight.base.log import current_level
from tokenlight.checkpoint import Checkpoint
from tokenlight.config import EngineConfig
from tokenlight.runner.machine import read_machine
from tokenlight.runner.ranks.channel import Channel, GroupChannel
from tokenlight.runner.ranks.collect import collect
from tokenlight.runner.ranks.devices import check_gpus, device_of_launched
from tokenlight.runner.ranks.followers import Followers
from tokenlight.runner.ranks.guests import Guests
from tokenlight.runner.ranks.leader import Groups, LeadingModel
from tokenlight.runner.ranks.meeting import Door
from tokenlight.runner.ranks.mesh import mesh_of
from tokenlight.runner.ranks.mirror import Mirror
from tokenlight.runner.ranks.orders import RankOrders, pack_orders
from tokenlight.runner.ranks.share import Seat, Share, join, make_store
from tokenlight.runner.ranks.steps import RankSteps, TableSize
from tokenlight.runner.resolve import model_shape, resolve_limits
from tokenlight.runner.staged_model import Place


class OtherRanks:
    """They were started before the leading rank loads its own share, so that all load at once."""

    def __init__(
        self,
        channel: Channel,
        config: EngineConfig,
        ended: ExitStack,
        wait_until_loaded: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._config = config
        self._ended = ended
        self._wait_until_loaded = wait_until_loaded
        self._leading: LeadingModel | None = None

    def lead(self, share: Share) -> LeadingModel:
        """This rank's model, whose calls the others make as well; waits until they have loaded."""
        self._wait_until_loaded()
        table, parallel = TableSize.of(share.config), self._config.parallel
        self._leading = LeadingModel(
            share.model,
            RankSteps(share.kv, table),
            Groups(
                first_ranks=range(0, parallel.num_ranks, parallel.attn_width),
                num_slots=table.num_slots,
            ),
            self._channel.send,
        )
        return self._leading

    def mirror(self) -> Mirror:
        """By which staged steps are told; waits until the others have loaded."""
        self._wait_until_loaded()
        parallel = self._config.parallel
        first_ranks = range(0, parallel.num_ranks, parallel.attn_width)
        place = Place(parallel.dp, collect=partial(collect, first_ranks=first_ranks))
        return Mirror(self._channel.send, place=place)

    def note(self, patches: NDArray[np.int32]) -> None:
        """What a plan changed in the block tables."""
        if self._leading is not None:
            self._leading.note(patches)

    def close(self) -> None:
        """End them."""
        self._ended.close()


def find_ranks(checkpoint: Checkpoint, config: EngineConfig) -> OtherRanks | None:
    """The others: those that a launcher started, or children of this process; None: there are none.

    Raises:
        ConfigError: what was asked cannot be had with several ranks.
    """
    if config.parallel.num_ranks == 1:
        return None
    machine = read_machine()
    device = resolve_limits(config, model_shape(checkpoint, mesh_of(config)), machine).device
    launched = read_env().num_ranks
    if launched in (None, 1):
        check_gpus(device, config.parallel.num_ranks, machine.num_gpus)
        return _spawn(config, device)
    if launched != config.parallel.num_ranks:
        raise ConfigError(
            f"WORLD_SIZE says that {launched} ranks were launched, but the flags ask for "
            f"{config.parallel.num_ranks}; make them equal"
        )
    return _meet(config, device)


def _spawn(config: EngineConfig, device: str) -> OtherRanks:
    num_ranks, ended = config.parallel.num_ranks, ExitStack()
    store = make_store(num_ranks)
    orders = _orders(config, device, store.port)
    followers = Followers(
        {rank: msgspec.structs.replace(orders, rank=rank) for rank in range(1, num_ranks)}
    )
    ended.callback(followers.close)
    ended.enter_context(join(Seat(store, rank=0, world_size=num_ranks), device))
    return OtherRanks(followers.channel, config, ended, followers.wait_ready)


def _meet(config: EngineConfig, device: str) -> OtherRanks:
    ended, channel = ExitStack(), GroupChannel()
    ended.enter_context(join(None, device_of_launched()))
    door = Door(read_env().master_addr)
    orders = _orders(config, device, store_port=0)
    channel.send(pack_orders(msgspec.structs.replace(orders, door=door.address, key=door.key)))
    guests = Guests(door.let_in(config.parallel.num_ranks - 1))
    ended.callback(guests.close)
    ended.callback(channel.close)
    ended.callback(guests.await_end)
    return OtherRanks(channel, config, ended, guests.wait_ready)


def _orders(config: EngineConfig, device: str, store_port: int) -> RankOrders:
    return RankOrders(
        config=config, rank=0, device=device, store_port=store_port, log_level=current_level()
    )
