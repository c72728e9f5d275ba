# SPDX-License-Identifier: Apache-2.0
"""Message -> Step, on every rank alike: with a block table that is kept by the changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokenlight.nn import KvCache, Step
from tokenlight.runner.ranks.message import Message, Words
from tokenlight.runner.resolve import ResolvedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """Of a group's block table."""

    num_slots: int
    """Most requests that run at once."""
    num_columns: int
    """Most blocks of one."""
    num_blocks: int
    """That the scheduler knows of. One more is there for the rows that pad a step."""

    @classmethod
    def of(cls, config: ResolvedConfig) -> TableSize:
        return cls(
            num_slots=config.max_num_requests,
            num_columns=-(-config.max_model_tokens // config.block_tokens),
            num_blocks=config.num_blocks,
        )


class RankSteps:
    """Makes this rank's steps, in the order of the messages."""

    def __init__(self, kv: KvCache, size: TableSize) -> None:
        self._kv = kv
        self._pad_slot = size.num_slots
        self._table = torch.zeros(size.num_slots + 1, size.num_columns, dtype=torch.int32)
        self._table[self._pad_slot] = size.num_blocks

    def make(self, message: Message) -> Step:
        """Each row of padding is a request of its own: one token at position 0."""
        for slot, column, block in message.patches.tolist():  # in order: a place may change twice
            self._table[slot, column] = block
        num = message.num_padding
        last = message.query_starts[-1:]
        return Step(
            token_ids_T=_padded(message.token_ids, num, 0),
            positions_T=_padded(message.positions, num, 0),
            query_starts=torch.from_numpy(
                np.concatenate([message.query_starts, last + np.arange(1, num + 1, dtype=np.int32)])
            ),
            kv_lens=_padded(message.kv_lens, num, 1),
            slots=_padded(message.slots, num, self._pad_slot),
            block_table=self._table,
            sampled_rows=torch.from_numpy(message.sampled_rows),
            kv=self._kv,
        )


def _padded(array: Words, num: int, value: int) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([array, np.full(num, value, np.int32)]))
