# SPDX-License-Identifier: Apache-2.0
"""A model over staged inputs, its decode steps captured: on every rank alike.

Where groups of ranks have other requests, a step has a frame for each group. A rank has its own,
and the leading one has all, because it chooses ids for all.

Shapes: T tokens, S sampled rows of a group, A those of all groups, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache, Step
from tokenlight.runner.graphs import CudaGraphs, Recorded, Recorder, Rerun
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampler import RowParams
from tokenlight.runner.staging import Frame, Size, Staging

# Logits, float32 [A, V], what rows ask for, by group, and how many rows they are -> ids, int32 [A].
Choose = Callable[[Tensor, Sequence[RowParams], int], Tensor]


def _as_they_are(logits_SV: Tensor, num_rows: Sequence[int]) -> Tensor:
    return logits_SV


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands among groups of ranks with other requests."""

    num_groups: int = 1
    group: int = 0
    is_leading: bool = True
    collect: Callable[[Tensor, Sequence[int]], Tensor] = _as_they_are
    """Logits of this group's rows, how many rows each group has -> on the leading rank, all."""


@dataclass(frozen=True, slots=True)
class Frames:
    """A step's inputs: those of this rank's group, and on the leading rank the other groups'."""

    own: Frame
    sizes: Sequence[Size]
    """Of each group's."""
    others: Sequence[Frame] = ()

    @property
    def num_rows(self) -> list[int]:
        """Sampled ones of each group."""
        return [size.num_sampled for size in self.sizes]


@dataclass(frozen=True, slots=True)
class Captured:
    """Decode steps of up to so many requests of each group, of up to so many tokens."""

    frames: Frames
    whole: Recorded
    """Forward and choice: gives what travels back."""
    forward: Recorded
    """The forward alone: gives logits and their sums."""


class StagedModel:
    """Runs what lies in a frame, and keeps the ids that it chose where the next step looks."""

    def __init__(
        self,
        model: CompiledModel,
        kv: KvCache,
        config: ResolvedConfig,
        choose: Choose,
        place: Place,
    ) -> None:
        self._model = model
        self._choose = choose
        self._place = place
        self._device = torch.device(config.device)
        num_stagings = place.num_groups if place.is_leading else 1
        self.stagings = [Staging(config, kv, self._device) for _ in range(num_stagings)]
        """This rank's group's, and on the leading rank the others', whose requests it knows."""
        self._logits = torch.empty(0, 0, device=self._device)
        """Of captured steps that are sampled by themselves, whichever ran last."""
        recorder: Recorder = CudaGraphs() if self._device.type == "cuda" else Rerun()
        # The largest first: the others fit into the memory that it takes.
        self._captured = {
            (rows, longest_tokens): self._capture(rows, longest_tokens, recorder)
            for rows in sorted(config.graph_rows, reverse=True)
            for longest_tokens in sorted(config.graph_tokens, reverse=True)
        }
        self._rows, self._tokens = sorted(config.graph_rows), sorted(config.graph_tokens)

    def captured_for(self, sizes: Sequence[Size]) -> Captured | None:
        """The least that holds a step; only where each request has one sampled token."""
        most = longest = 0
        for num_tokens, num_requests, num_sampled, longest_tokens in sizes:
            if not num_tokens == num_requests == num_sampled:
                return None
            most, longest = max(most, num_tokens), max(longest, longest_tokens)
        rows = next((n for n in self._rows if n >= most), None)
        tokens = next((n for n in self._tokens if n >= longest), None)
        return None if rows is None or tokens is None else self._captured[rows, tokens]

    def frames(self, sizes: Sequence[Size], table_tokens: int | None = None) -> Frames:
        """For a step of such sizes, of each group; with tables as `Staging.frame` has them."""
        if not self._place.is_leading:
            own = self.stagings[0].frame(sizes[self._place.group], table_tokens)
            return Frames(own, sizes)
        own, *others = (
            staging.frame(size, table_tokens)
            for staging, size in zip(self.stagings, sizes, strict=True)
        )
        return Frames(own, sizes, others)

    @torch.inference_mode()
    def _capture(self, rows: int, longest_tokens: int, recorder: Recorder) -> Captured:
        sizes = [Size(rows, rows, rows, longest_tokens)] * self._place.num_groups
        frames = self.frames(sizes, longest_tokens)
        for staging, frame in zip(self.stagings, (frames.own, *frames.others), strict=True):
            staging.put_padding(frame)

        def whole() -> tuple[Tensor, ...]:
            return (self.choose(frames, *self.forward(frames)),)

        return Captured(
            frames, recorder.record(whole), recorder.record(partial(self._keep_logits, frames))
        )

    def _keep_logits(self, frames: Frames) -> tuple[Tensor, Tensor]:
        """As `forward`, into memory that all captures share: each would hold as much for ever."""
        logits_AV, sums_A = self.forward(frames)
        if len(logits_AV) > len(self._logits):  # before the first capture, of most rows
            self._logits = torch.empty_like(logits_AV)
        kept_AV = self._logits[: len(logits_AV)]
        return kept_AV.copy_(logits_AV), sums_A

    def forward(self, frames: Frames) -> tuple[Tensor, Tensor]:
        """Logits, and their sums: one infinity or NaN in a row makes its sum one."""
        logits_SV = self._model(self._known_step(frames.own))
        logits_AV = self._place.collect(logits_SV, frames.num_rows)
        return logits_AV, logits_AV.sum(1)

    def hidden(self, frames: Frames) -> Tensor:
        """What the last layer gives."""
        return self._model.hidden(self._known_step(frames.own))

    def logits(self, x_TD: Tensor, rows_S: Tensor, num_rows: Sequence[int]) -> Tensor:
        """Of some rows of `hidden`, and so many of each group."""
        return self._place.collect(self._model.logits(x_TD, rows_S.to(self._device)), num_rows)

    def choose(self, frames: Frames, logits_AV: Tensor, sums_A: Tensor) -> Tensor:
        """Ids, and on the leading rank the bits of the sums: int32 [2, A]."""
        num_rows, frame = frames.num_rows, frames.own
        params = [each.params for each in (frame, *frames.others)]
        ids_A = self._choose(logits_AV, params, sum(num_rows))
        first = sum(num_rows[: self._place.group])
        own_S = ids_A[first : first + frame.size.num_sampled]
        self.stagings[0].last_ids.index_copy_(0, frame.sampled_slots, own_S)
        if not self._place.is_leading:
            return ids_A
        return torch.stack([ids_A, sums_A.view(torch.int32)])

    def _known_step(self, frame: Frame) -> Step:
        """With the ids that only the device knows: each in its request's first row."""
        step, last_ids = frame.step, self.stagings[0].last_ids
        sampled = last_ids.index_select(0, step.slots)
        if frame.size.num_tokens == frame.size.num_requests:
            ids_T = torch.where(step.token_ids_T < 0, sampled, step.token_ids_T)
        else:
            first_rows = step.query_starts[:-1].long()
            firsts = step.token_ids_T.index_select(0, first_rows)
            firsts = torch.where(firsts < 0, sampled, firsts)
            ids_T = step.token_ids_T.index_copy(0, first_rows, firsts)
        return replace(step, token_ids_T=ids_T)
