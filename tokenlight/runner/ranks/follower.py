# SPDX-License-Identifier: Apache-2.0
"""Every other rank: runs what it is told, with a block table that it keeps by the changes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache, Step
from tokenlight.runner.ranks.message import Message, Verb, Words, decode


@torch.inference_mode()
def follow(
    model: CompiledModel,
    kv: KvCache,
    messages: Iterable[Words],
    *,
    num_slots: int,
    num_columns: int,
) -> None:
    """Run the model as the leading rank does, until the messages end.

    Args:
        model: this rank's share.
        kv: as many blocks as on the other ranks.
        messages: in the order in which they were sent.
        num_slots: most requests that run at once.
        num_columns: most blocks of one.
    """
    table = torch.zeros(num_slots, num_columns, dtype=torch.int32)
    x_TD = torch.empty(0)
    for words in messages:
        message = decode(words)
        patches = torch.from_numpy(message.patches).long()
        for slot, column, block in patches.tolist():  # in order: a place may change twice
            table[slot, column] = block
        rows = torch.from_numpy(message.sampled_rows)
        if message.verb is not Verb.LOGITS:
            x_TD = model.hidden(_step(message, rows, table, kv))
        if message.verb is not Verb.HIDDEN:
            model.logits(x_TD, rows)


def _step(message: Message, rows: Tensor, table: Tensor, kv: KvCache) -> Step:
    return Step(
        token_ids_T=torch.from_numpy(message.token_ids),
        positions_T=torch.from_numpy(message.positions),
        query_starts=torch.from_numpy(message.query_starts),
        kv_lens=torch.from_numpy(message.kv_lens),
        slots=torch.from_numpy(message.slots),
        block_table=table,
        sampled_rows=rows,
        kv=kv,
    )
