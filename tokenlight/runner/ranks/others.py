# SPDX-License-Identifier: Apache-2.0
"""The leading rank's hold on the others, from their start to their end."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from tokenlight.base.errors import ConfigError
from tokenlight.base.log import current_level
from tokenlight.config import EngineConfig
from tokenlight.models import CompiledModel
from tokenlight.runner.ranks.followers import Followers
from tokenlight.runner.ranks.leader import LeadingModel
from tokenlight.runner.ranks.mesh import mesh_of
from tokenlight.runner.ranks.orders import RankOrders
from tokenlight.runner.ranks.share import join, make_store
from tokenlight.runner.resolve import ResolvedConfig


class OtherRanks:
    """Started before the leading rank loads its own share, so that all load at once."""

    def __init__(self, config: EngineConfig, resolved: ResolvedConfig) -> None:
        """Spawn them, and meet them.

        Raises:
            ConfigError: what was asked cannot be had with several ranks.
        """
        mesh = mesh_of(config)
        _check(config, resolved)
        store = make_store(mesh.num_ranks)
        self._followers = Followers(
            [
                RankOrders(
                    config=config,
                    rank=rank,
                    store_port=store.port,
                    num_blocks=resolved.num_blocks,
                    num_columns=-(-resolved.max_model_tokens // resolved.block_tokens),
                    log_level=current_level(),
                )
                for rank in range(1, mesh.num_ranks)
            ]
        )
        self._leading: LeadingModel | None = None
        self._ended = ExitStack()
        self._ended.callback(self._followers.close)
        self._ended.enter_context(join(config, rank=0, store_port=store.port, store=store))

    def lead(self, model: CompiledModel) -> LeadingModel:
        """This rank's model, whose calls the others make as well; waits until they have loaded."""
        self._followers.wait_ready()
        self._leading = LeadingModel(model, self._followers.channel.send)
        return self._leading

    def note(self, patches: NDArray[np.int32]) -> None:
        """What a plan changed in the block tables."""
        if self._leading is not None:
            self._leading.note(patches)

    def close(self) -> None:
        """End them."""
        self._ended.close()


def _check(config: EngineConfig, resolved: ResolvedConfig) -> None:
    if resolved.device != "cpu":
        raise ConfigError(
            "several ranks (--tensor-parallel-size) run on CPUs only in this version; "
            "leave it out, or give --device cpu"
        )
    if config.parallel.attn_width != config.parallel.num_ranks:
        raise ConfigError(
            f"ranks with different tokens in attention (--data-parallel-size "
            f"{config.parallel.dp}) can be planned (tokenlight plan) but not served in this "
            f"version; --tensor-parallel-size {config.parallel.num_ranks} shares attention as well"
        )
    if resolved.overlap:
        raise ConfigError(
            f"--overlap-steps {resolved.overlap} is not available with several ranks; leave it out"
        )
