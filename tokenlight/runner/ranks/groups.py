# SPDX-License-Identifier: Apache-2.0
"""A step of all requests -> what each group of ranks is told of it.

Groups have other requests, and so other tokens; each has slots of its own. In a step the groups'
tokens are made equally many, because the layers between attention exchange them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenlight.nn import Step
from tokenlight.runner.ranks.message import Message, Verb, Words


@dataclass(frozen=True, slots=True)
class Shares:
    """A step, by group."""

    messages: tuple[Message, ...]
    first_rows: Words
    """[groups + 1]: where each group's rows begin among the rows of the step, and their end."""

    def rows(self, rows_S: Words) -> list[Words]:
        """Ascending rows of the step, as each group counts those that are its own."""
        return cut_rows(rows_S, self.first_rows)


def share_out(verb: Verb, step: Step, patches: Words, *, num_groups: int, num_slots: int) -> Shares:
    """Cut a step whose requests stand in their groups' order.

    Args:
        verb: of the messages.
        step: slots of group g are `g * num_slots` and up.
        patches: [P, 3]: slot, column, block.
        num_groups: of ranks with the same requests.
        num_slots: of each group.
    """
    slots, starts = step.slots.numpy(), step.query_starts.numpy()
    groups = np.arange(num_groups + 1, dtype=np.int32)
    firsts, first_slots = np.searchsorted(slots // num_slots, groups), groups * num_slots
    rows = starts[firsts]
    most = int(np.diff(rows).max())
    sampled = cut_rows(step.sampled_rows.numpy(), rows)
    ids, positions, kv_lens = (
        each.numpy() for each in (step.token_ids_T, step.positions_T, step.kv_lens)
    )

    def message(group: int) -> Message:
        requests = slice(firsts[group], firsts[group + 1])
        tokens = slice(rows[group], rows[group + 1])
        return Message(
            verb=verb,
            sampled_rows=sampled[group],
            token_ids=ids[tokens],
            positions=positions[tokens],
            kv_lens=kv_lens[requests],
            slots=slots[requests] - first_slots[group],
            query_starts=starts[requests.start : requests.stop + 1] - rows[group],
            patches=_of_slots(patches, first_slots[group], first_slots[group + 1]),
            num_padding=most - int(rows[group + 1] - rows[group]),
        )

    return Shares(tuple(message(group) for group in range(num_groups)), rows)


def cut_rows(rows_S: Words, first_rows: Words) -> list[Words]:
    """Ascending rows of a step, as each group counts those between its first one and the next's."""
    places = np.searchsorted(rows_S, first_rows)
    return [
        rows_S[place:end] - first
        for place, end, first in zip(places, places[1:], first_rows, strict=False)
    ]


def _of_slots(patches: Words, first: np.int32, end: np.int32) -> Words:
    is_here = (first <= patches[:, 0]) & (patches[:, 0] < end)
    return patches[is_here] - np.array([first, 0, 0], np.int32)
