# SPDX-License-Identifier: Apache-2.0
"""Staged steps on several ranks: what the leading one stages, every one stages.

A step's inputs travel as the words that the leading rank has written for its own device. What only
its device knows, the ids that a step chose, is broadcast between devices within the step; so the
others need no logits, no grammar and no parameters, and steps may be in flight.

A message: the verb, the step's sizes, how many patches, how many rows and columns of a table; then
the words, then the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache
from tokenlight.runner.ranks.message import Words
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampler import RowParams
from tokenlight.runner.staged_model import StagedModel
from tokenlight.runner.staging import Frame, Put, Size
from tokenlight.runner.trial import try_step_s

_HEADER_WORDS = 7
_NO_TABLE = np.zeros((0, 0), np.int32)


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
        self, tell: Callable[[Words], None], share: Callable[[Tensor], None] = share_ids
    ) -> None:
        self._tell = tell
        self.share = share

    def put(self, verb: Verb, size: Size, put: Put) -> None:
        """What was staged, and what is run of it."""
        table = _NO_TABLE if put.table is None else put.table
        header = np.array([verb, *size, put.num_patches, *table.shape], np.int32)
        self._tell(np.concatenate([header, put.words, table.reshape(-1)]))

    def logits(self, rows_S: Words) -> None:
        """Of the last step."""
        self._tell(np.concatenate([_header(Verb.LOGITS), rows_S]))

    def sampled(self) -> None:
        self._tell(_header(Verb.SAMPLED))


@torch.inference_mode()
def follow_mirror(
    model: CompiledModel,
    kv: KvCache,
    config: ResolvedConfig,
    messages: Iterable[Words],
    *,
    share: Callable[[Tensor], None] = share_ids,
) -> None:
    """Be a rank that follows, until the messages end.

    Args:
        model: this rank's share.
        kv: of as many blocks as on the leading rank.
        config: the leading rank's, as far as sizes go.
        messages: in the order in which they were sent.
        share: as the leading rank's.
    """

    def hear(logits_SV: Tensor, params: RowParams) -> Tensor:
        """What the leading rank chooses."""
        ids_S = torch.zeros(logits_SV.shape[0], dtype=torch.int32, device=logits_SV.device)
        share(ids_S)
        return ids_S

    staged = StagedModel(model, kv, config, hear)
    try_step_s(model, kv, config.device)  # as the leading rank does
    follower = _Follower(staged, config)
    for words in messages:
        follower.take(words)


class _Follower:
    def __init__(self, staged: StagedModel, config: ResolvedConfig) -> None:
        self._staged = staged
        # A host buffer is written again only after its copy to the device.
        self._copied = [
            torch.cuda.Event() if config.device == "cuda" else None
            for _ in range(config.overlap + 1)
        ]
        self._turn = 0
        self._frame: Frame | None = None
        self._x_TD = torch.empty(0)

    def take(self, words: Words) -> None:
        verb = Verb(int(words[0]))
        if verb is Verb.LOGITS:
            self._staged.logits(self._x_TD, torch.from_numpy(words[_HEADER_WORDS:].copy()))
            return
        if verb is Verb.SAMPLED:
            frame = self._known_frame()
            logits_SV = self._staged.logits(self._x_TD, frame.step.sampled_rows)
            self._staged.choose(frame, logits_SV, logits_SV.sum(1))
            return
        self._run(verb, words)

    def _run(self, verb: Verb, words: Words) -> None:
        staged, (size, put) = self._staged, read_put(words)
        captured = staged.captured_for(size)
        frame = captured.frame if captured else staged.staging.frame(size)
        self._frame = frame
        self._stage(put, frame)
        match verb:
            case Verb.HIDDEN:
                self._x_TD = staged.hidden(frame)
            case Verb.WHOLE:
                assert captured is not None
                captured.whole.replay()
            case Verb.FORWARD if captured:
                captured.forward.replay()
                staged.choose(frame, *captured.forward.results)
            case Verb.FORWARD:
                staged.choose(frame, *staged.forward(frame))

    def _stage(self, put: Put, frame: Frame) -> None:
        event = self._copied[self._turn]
        self._turn = (self._turn + 1) % len(self._copied)
        if event is not None:
            event.synchronize()
        self._staged.staging.repeat(put, frame)
        if event is not None:
            event.record()

    def _known_frame(self) -> Frame:
        assert self._frame is not None, "no step was staged"
        return self._frame


def _header(verb: Verb) -> Words:
    return np.array([verb, *[0] * (_HEADER_WORDS - 1)], np.int32)


def read_put(words: Words) -> tuple[Size, Put]:
    """What `Mirror.put` told."""
    _, *sizes, num_patches, num_rows, num_columns = words[:_HEADER_WORDS].tolist()
    end = len(words) - num_rows * num_columns
    table = words[end:].reshape(num_rows, num_columns) if num_rows else None
    return Size(*sizes), Put(words[_HEADER_WORDS:end], num_patches, table)
