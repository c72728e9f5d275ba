# SPDX-License-Identifier: Apache-2.0
"""A model over staged inputs, its decode steps captured: on every rank alike.

Shapes: T tokens, S sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
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

# Logits, float32 [S, V], and what rows ask for -> ids, int32 [S].
Choose = Callable[[Tensor, RowParams], Tensor]


@dataclass(frozen=True, slots=True)
class Captured:
    """Decode steps of up to so many requests."""

    frame: Frame
    whole: Recorded
    """Forward and choice: gives what travels back."""
    forward: Recorded
    """The forward alone: gives logits and their sums."""


class StagedModel:
    """Runs what lies in a frame, and keeps the ids that it chose where the next step looks."""

    def __init__(
        self, model: CompiledModel, kv: KvCache, config: ResolvedConfig, choose: Choose
    ) -> None:
        self._model = model
        self._choose = choose
        self._device = torch.device(config.device)
        self.staging = Staging(config, kv, self._device)
        recorder: Recorder = CudaGraphs() if self._device.type == "cuda" else Rerun()
        # The largest first: the others fit into the memory that it takes.
        self.captured = {
            rows: self._capture(rows, recorder) for rows in sorted(config.graph_rows, reverse=True)
        }

    def captured_for(self, size: Size) -> Captured | None:
        """Of the fewest rows that hold a step; only where each request has one sampled token."""
        if not size.num_tokens == size.num_requests == size.num_sampled:
            return None
        fitting = [rows for rows in self.captured if rows >= size.num_tokens]
        return self.captured[min(fitting)] if fitting else None

    @torch.inference_mode()
    def _capture(self, rows: int, recorder: Recorder) -> Captured:
        frame = self.staging.frame(Size(rows, rows, rows))
        self.staging.put_padding(frame)

        def whole() -> tuple[Tensor, ...]:
            return (self.choose(frame, *self.forward(frame)),)

        return Captured(
            frame, recorder.record(whole), recorder.record(partial(self.forward, frame))
        )

    def forward(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """Logits, and their sums: one infinity or NaN in a row makes its sum one."""
        logits_SV = self._model(self._known_step(frame))
        return logits_SV, logits_SV.sum(1)

    def hidden(self, frame: Frame) -> Tensor:
        """What the last layer gives."""
        return self._model.hidden(self._known_step(frame))

    def logits(self, x_TD: Tensor, rows_S: Tensor) -> Tensor:
        """Of some rows of `hidden`."""
        return self._model.logits(x_TD, rows_S.to(self._device))

    def choose(self, frame: Frame, logits_SV: Tensor, sums_S: Tensor) -> Tensor:
        """Ids, and the bits of the sums: int32 [2, S]."""
        ids_S = self._choose(logits_SV, frame.params)
        self.staging.last_ids.index_copy_(0, frame.sampled_slots, ids_S)
        return torch.stack([ids_S, sums_S.view(torch.int32)])

    def _known_step(self, frame: Frame) -> Step:
        """With the ids that only the device knows: each in its request's first row."""
        step, last_ids = frame.step, self.staging.last_ids
        sampled = last_ids.index_select(0, step.slots)
        if frame.size.num_tokens == frame.size.num_requests:
            ids_T = torch.where(step.token_ids_T < 0, sampled, step.token_ids_T)
        else:
            first_rows = step.query_starts[:-1].long()
            firsts = step.token_ids_T.index_select(0, first_rows)
            firsts = torch.where(firsts < 0, sampled, firsts)
            ids_T = step.token_ids_T.index_copy(0, first_rows, firsts)
        return replace(step, token_ids_T=ids_T)
