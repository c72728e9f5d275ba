# SPDX-License-Identifier: Apache-2.0
"""Staged steps on several ranks: what the leading one stages, every one stages.

A step's inputs travel as the words that the leading rank has written for its own device. What only
its device knows, the ids that a step chose, is broadcast between devices within the step; so the
others need no logits, no grammar and no parameters, and steps may be in flight.

A message has a part for each group of ranks with other requests: the verb, the step's sizes, how
many patches, how many rows and columns of a table; then the words, then the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache
from tokenlight.runner.ranks.message import Words, pack, unpack
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampler import RowParams
from tokenlight.runner.staged_model import Frames, Place, StagedModel
from tokenlight.runner.staging import Put, Size
from tokenlight.runner.trial import try_step_s

_HEADER_WORDS = 8
_NO_TABLE = np.zeros((0, 0), np.int32)
_ALONE, _FOLLOWING = Place(), Place(is_leading=False)


class Verb(IntEnum):
    """What a rank does, once what comes with it is staged."""

    WHOLE = 0
    """The step, captured: forward and ids."""
    FORWARD = 1
    """The step, up to its ids."""
    HIDDEN = 2
    """The body alone."""
    LOGITS = 3
    """The head, of the rows that come with it."""
    SAMPLED = 4
    """The head, of the step's sampled rows, up to its ids."""


def share_ids(ids_S: Tensor) -> None:
    """From the leading rank's device to those of the others, over what they hold there."""
    dist.broadcast(ids_S, src=0)


class Mirror:
    """The leading rank's end."""

    def __init__(
        self,
        tell: Callable[[Words], None],
        share: Callable[[Tensor], None] = share_ids,
        place: Place = _ALONE,
    ) -> None:
        self._tell = tell
        self.share = share
        self.place = place

    def put(self, verb: Verb, sizes: Sequence[Size], puts: Sequence[Put]) -> None:
        """What was staged for each group, and what is run of it."""
        self._tell(pack([_told(verb, *each) for each in zip(sizes, puts, strict=True)]))

    def logits(self, rows: Sequence[Words]) -> None:
        """Of the last step, as each group counts them."""
        self._tell(pack([np.concatenate([_header(Verb.LOGITS), each]) for each in rows]))

    def sampled(self) -> None:
        self._tell(pack([_header(Verb.SAMPLED)] * self.place.num_groups))


def _told(verb: Verb, size: Size, put: Put) -> Words:
    table = _NO_TABLE if put.table is None else put.table
    header = np.array([verb, *size, put.num_patches, *table.shape], np.int32)
    return np.concatenate([header, put.words, table.reshape(-1)])


@torch.inference_mode()
def follow_mirror(
    model: CompiledModel,
    kv: KvCache,
    config: ResolvedConfig,
    messages: Iterable[Words],
    *,
    share: Callable[[Tensor], None] = share_ids,
    place: Place = _FOLLOWING,
) -> None:
    """Be a rank that follows, until the messages end.

    Args:
        model: this rank's share.
        kv: of as many blocks as on the leading rank.
        config: the leading rank's, as far as sizes go.
        messages: in the order in which they were sent.
        share: as the leading rank's.
        place: this rank's.
    """

    def hear(logits_SV: Tensor, params: Sequence[RowParams], num_rows: int) -> Tensor:
        """What the leading rank chooses."""
        ids_A = torch.zeros(num_rows, dtype=torch.int32, device=logits_SV.device)
        share(ids_A)
        return ids_A

    staged = StagedModel(model, kv, config, hear, place)
    try_step_s(model, kv, config.device)  # as the leading rank does
    follower = _Follower(staged, config, place)
    for words in messages:
        follower.take(words)


class _Follower:
    def __init__(self, staged: StagedModel, config: ResolvedConfig, place: Place) -> None:
        self._staged = staged
        self._place = place
        # A host buffer is written again only after its copy to the device.
        self._copied = [
            torch.cuda.Event() if config.device == "cuda" else None
            for _ in range(config.overlap + 1)
        ]
        self._turn = 0
        self._frames: Frames | None = None
        self._x_TD = torch.empty(0)

    def take(self, words: Words) -> None:
        parts = [unpack(words, group) for group in range(self._place.num_groups)]
        own = parts[self._place.group]
        verb = Verb(int(own[0]))
        if verb is Verb.LOGITS:
            num_rows = [len(part) - _HEADER_WORDS for part in parts]
            rows_S = torch.from_numpy(own[_HEADER_WORDS:].copy())
            self._staged.logits(self._x_TD, rows_S, num_rows)
        elif verb is Verb.SAMPLED:
            frames = self._known_frames()
            rows_S = frames.own.step.sampled_rows
            logits_SV = self._staged.logits(self._x_TD, rows_S, frames.num_rows)
            self._staged.choose(frames, logits_SV, logits_SV.sum(1))
        else:
            self._run(verb, [read_size(part) for part in parts], read_put(own))

    def _run(self, verb: Verb, sizes: Sequence[Size], put: Put) -> None:
        staged = self._staged
        captured = staged.captured_for(sizes)
        frames = captured.frames if captured else staged.frames(sizes)
        self._frames = frames
        self._stage(put, frames)
        match verb:
            case Verb.HIDDEN:
                self._x_TD = staged.hidden(frames)
            case Verb.WHOLE:
                assert captured is not None
                captured.whole.replay()
            case Verb.FORWARD if captured:
                captured.forward.replay()
                staged.choose(frames, *captured.forward.results)
            case Verb.FORWARD:
                staged.choose(frames, *staged.forward(frames))

    def _stage(self, put: Put, frames: Frames) -> None:
        event = self._copied[self._turn]
        self._turn = (self._turn + 1) % len(self._copied)
        if event is not None:
            event.synchronize()
        self._staged.stagings[0].repeat(put, frames.own)
        if event is not None:
            event.record()

    def _known_frames(self) -> Frames:
        assert self._frames is not None, "no step was staged"
        return self._frames


def _header(verb: Verb) -> Words:
    return np.array([verb, *[0] * (_HEADER_WORDS - 1)], np.int32)


def read_size(words: Words) -> Size:
    """Of what `Mirror.put` told a group."""
    return Size(*words[1:5].tolist())


def read_put(words: Words) -> Put:
    """What `Mirror.put` told a group."""
    num_patches, num_rows, num_columns = words[5:_HEADER_WORDS].tolist()
    end = len(words) - num_rows * num_columns
    table = words[end:].reshape(num_rows, num_columns) if num_rows else None
    return Put(words[_HEADER_WORDS:end], num_patches, table)
