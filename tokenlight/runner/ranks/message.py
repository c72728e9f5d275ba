# SPDX-License-Identifier: Apache-2.0
"""What the leading rank tells the others of a step: int32 words, as few as there are.

A header of counts, then the arrays one after the other. Of the block tables only what changed is
sent, so a step of 64 requests takes under 2 KB whatever their contexts. Where groups of ranks have
other tokens, what each group is told goes to all of them, side by side.

Shapes: T tokens, R requests, S rows, P patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int32]

_HEADER_WORDS = 6


class Verb(IntEnum):
    """What a rank runs: it calls what the leading rank calls, in the same order."""

    STEP = 0
    """The body, and the head of the step's sampled rows."""
    HIDDEN = 1
    """The body alone."""
    LOGITS = 2
    """The head, of rows of the last body."""


def _nothing() -> Words:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Arrays as in `nn.Step`; of LOGITS only `sampled_rows` are there."""

    verb: Verb
    sampled_rows: Words
    token_ids: Words = field(default_factory=_nothing)
    positions: Words = field(default_factory=_nothing)
    kv_lens: Words = field(default_factory=_nothing)
    slots: Words = field(default_factory=_nothing)
    query_starts: Words = field(default_factory=_nothing)
    """[R + 1], or nothing where there is no step."""
    patches: Words = field(default_factory=_nothing)
    """[P, 3]: slot, column, block: what changed in the table since the last message, in order."""
    num_padding: int = 0
    """Tokens of nobody behind the others: all groups have equally many in a step."""


def encode(message: Message) -> Words:
    """The message as one array."""
    arrays = (
        message.sampled_rows,
        message.token_ids,
        message.positions,
        message.kv_lens,
        message.slots,
        message.query_starts,
        message.patches.reshape(-1),
    )
    counts = (len(message.sampled_rows), len(message.token_ids), len(message.slots))
    header = (message.verb, *counts, message.patches.size // 3, message.num_padding)
    return np.concatenate([np.array(header, np.int32), *arrays])


def decode(words: Words) -> Message:
    """The message again; its arrays are views of `words`."""
    header = words[:_HEADER_WORDS].tolist()
    verb, num_rows, num_tokens, num_requests, num_patches, num_padding = header
    num_starts = 0 if verb == Verb.LOGITS else num_requests + 1
    counts = (
        num_rows, num_tokens, num_tokens, num_requests, num_requests, num_starts, 3 * num_patches,
    )  # fmt: skip
    arrays: Iterator[Words] = _cut(words[_HEADER_WORDS:], counts)
    sampled_rows, token_ids, positions, kv_lens, slots, query_starts, patches = arrays
    return Message(
        verb=Verb(verb),
        sampled_rows=sampled_rows,
        token_ids=token_ids,
        positions=positions,
        kv_lens=kv_lens,
        slots=slots,
        query_starts=query_starts,
        patches=patches.reshape(-1, 3),
        num_padding=num_padding,
    )


def pack(parts: Sequence[Words]) -> Words:
    """What each group is told, as one array."""
    head = np.array([len(parts), *map(len, parts)], np.int32)
    return np.concatenate([head, *parts])


def unpack(words: Words, group: int) -> Words:
    """What a group is told; a view."""
    num_groups = int(words[0])
    ends = np.cumsum(words[: num_groups + 1]) + 1
    first, end = ends[group : group + 2].tolist()
    return words[first:end]


def _cut(words: Words, counts: tuple[int, ...]) -> Iterator[Words]:
    ends = np.cumsum([0, *counts]).tolist()
    if ends[-1] != len(words):
        raise ValueError(f"a message of {len(words)} words says that it has {ends[-1]}")
    return (words[start:end] for start, end in pairwise(ends))
