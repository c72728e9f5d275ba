# SPDX-License-Identifier: Apache-2.0
"""Every other rank: runs what its group is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.runner.ranks.collect import give, hand_over, keep
from tokenlight.runner.ranks.message import Verb, Words, decode, unpack
from tokenlight.runner.ranks.mirror import follow_mirror
from tokenlight.runner.ranks.orders import RankOrders
from tokenlight.runner.ranks.share import load_share, open_model
from tokenlight.runner.ranks.steps import RankSteps, TableSize
from tokenlight.runner.staged_model import Place
from tokenlight.runner.timeline import Timeline


@torch.inference_mode()
def follow(
    model: CompiledModel,
    steps: RankSteps,
    messages: Iterable[Words],
    *,
    group: int = 0,
    give_logits: Callable[[Tensor], None] | None = None,
) -> None:
    """Run the model as the leading rank does, until the messages end.

    Args:
        model: this rank's share.
        steps: of this rank's KV.
        messages: in the order in which they were sent.
        group: whose requests this rank has.
        give_logits: takes them to the leading rank; None: another rank's are the same.
    """
    x_TD = torch.empty(0)
    for words in messages:
        message = decode(unpack(words, group))
        rows = torch.from_numpy(message.sampled_rows)
        if message.verb is not Verb.LOGITS:
            x_TD = model.hidden(steps.make(message))
        if message.verb is not Verb.HIDDEN:
            logits_SV = model.logits(x_TD, rows)
            if give_logits is not None:
                give_logits(logits_SV)


def follow_orders(
    orders: RankOrders, rank: int, messages: Iterable[Words], say_ready: Callable[[], None]
) -> None:
    """Load this rank's share, say so, run what comes.

    Raises:
        ConfigError: what the leading rank was asked for cannot be had on this machine.
        CheckpointError: the model's files cannot be used here.
    """
    checkpoint = open_model(orders.config)
    share = load_share(checkpoint, orders.config, rank=rank, timeline=Timeline())
    say_ready()
    parallel = orders.config.parallel
    group, place = divmod(rank, parallel.attn_width)
    # The leading rank's group is its own; of another the first rank gives.
    gives = bool(group) and not place
    if share.config.is_staged:
        follow_mirror(
            share.model,
            share.kv,
            share.config,
            messages,
            place=Place(parallel.dp, group, is_leading=False, collect=hand_over if gives else keep),
        )
        return
    follow(
        share.model,
        RankSteps(share.kv, TableSize.of(share.config)),
        messages,
        group=group,
        give_logits=give if gives else None,
    )
