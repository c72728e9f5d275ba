# SPDX-License-Identifier: Apache-2.0
"""Runs a model by hand, as the control plane would, and gives the logits of every token."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tokenlight.checkpoint import Checkpoint
from tokenlight.kernels.comm import Communicator
from tokenlight.kv import DevicePool
from tokenlight.models import cache_specs, compile_model, load_model, shard_model
from tokenlight.nn import Step
from tokenlight.spmd import Limits, Mesh, Ranks

BLOCK_TOKENS = 4
BLOCKS_PER_SLOT = 24


def integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Rig:
    """A model and KV blocks for four slots, scattered over a pool whose memory starts as NaN.

    Of several ranks that share the model, the one that `mesh` sees.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        mesh: Mesh | None = None,
        communicator: Communicator | None = None,
    ) -> None:
        sharding = shard_model(checkpoint, mesh) if mesh else None
        ranks = Ranks(sharding.mesh, sharding.layouts, communicator) if sharding else None
        self.model = load_model(checkpoint, sharding=sharding)
        layers = cache_specs(checkpoint, mesh)
        self.pool = DevicePool(
            layers,
            num_blocks=4 * BLOCKS_PER_SLOT,
            block_tokens=BLOCK_TOKENS,
            dtype=torch.float32,
        )
        for layer in range(len(layers)):
            for cache in self.pool.layer(layer):
                cache.fill_(torch.nan)
        limits = Limits(T=BLOCKS_PER_SLOT * BLOCK_TOKENS, S=BLOCKS_PER_SLOT * BLOCK_TOKENS)
        self.compiled = compile_model(self.model, self.pool, limits=limits, ranks=ranks)
        scattered = torch.randperm(4 * BLOCKS_PER_SLOT, generator=torch.Generator().manual_seed(1))
        self.block_table = scattered.to(torch.int32).view(4, BLOCKS_PER_SLOT)
        self.lengths = [0, 0, 0, 0]

    def make_step(self, tokens: Mapping[int, Sequence[int]]) -> Step:
        """One forward: `tokens` are the next of each slot."""
        ids, positions, starts = [], [], [0]
        for slot, new in tokens.items():
            ids += new
            positions += range(self.lengths[slot], self.lengths[slot] + len(new))
            self.lengths[slot] += len(new)
            starts.append(len(ids))
        return Step(
            token_ids_T=integers(ids),
            positions_T=integers(positions),
            query_starts=integers(starts),
            kv_lens=integers([self.lengths[slot] for slot in tokens]),
            slots=integers(list(tokens)),
            block_table=self.block_table,
            sampled_rows=integers(range(len(ids))),
            kv=self.pool,
        )

    def step(self, tokens: Mapping[int, Sequence[int]]) -> list[Tensor]:
        """Run it: logits [n, V] per slot, in its order."""
        with torch.inference_mode():
            logits = self.compiled(self.make_step(tokens))
        return list(logits.split([len(new) for new in tokens.values()]))

    def share(self, source: int, slot: int, num_blocks: int) -> None:
        """A prefix hit: the slot begins with blocks that another has filled."""
        self.block_table[slot, :num_blocks] = self.block_table[source, :num_blocks]
        self.lengths[slot] = num_blocks * BLOCK_TOKENS

    def restart(self, slot: int) -> None:
        """Preempt: what the slot's blocks hold is forgotten, the blocks are others."""
        self.lengths[slot] = 0
        self.block_table[slot] = self.block_table[slot].flip(0)
