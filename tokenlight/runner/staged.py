# SPDX-License-Identifier: Apache-2.0
"""Steps on a device of its own: staged, replayed where they were recorded, and waited for later.

In steady state the device never waits for the host: a step reads the ids that the step before it
sampled where they lie. Rows whose logits are shaped by what was said (grammars, penalties) need
those ids on the host: their step's forward is queued first, and only its sampling waits.

Shapes: T tokens, S sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import Plan
from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache, Step
from tokenlight.runner.graphs import CudaGraphs, Recorded, Recorder, Rerun
from tokenlight.runner.logprobs import pick_logprobs, read_logprobs
from tokenlight.runner.prompt_logprobs import PromptReader
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampled import Sampled
from tokenlight.runner.sampler import Sampler, Unsaid, num_accepted
from tokenlight.runner.staging import Frame, Size, Staging, size_of
from tokenlight.wire import PromptLogprobs, TokenLogprobs

_NO_ROWS = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class _Captured:
    """Decode steps of up to so many requests."""

    frame: Frame
    whole: Recorded
    """Forward and sampling: gives what travels back."""
    forward: Recorded
    """The forward alone: gives logits and their sums."""


@dataclass(slots=True, eq=False)
class StagedLaunch:
    """A step that is queued on the device."""

    steps: StagedSteps
    plan: Plan
    returned: NDArray[np.int32]
    """On the host, int32 [2, S], after `arrived`: ids, and the bits of the logits' sums."""
    arrived: torch.cuda.Event | None
    unsaid: Unsaid = ()
    logprobs: Mapping[int, Tensor] = field(default_factory=dict)
    wanted: Mapping[int, int] = field(default_factory=dict)
    bad_requests: Sequence[int] = ()
    prompt_logprobs: Mapping[int, list[PromptLogprobs]] = field(default_factory=dict)
    _ids: NDArray[np.int32] | None = None

    def token_ids(self) -> NDArray[np.int32]:
        """Wait for them; whoever comes first tells the shapers what was said."""
        if self._ids is None:
            if self.arrived is not None:
                self.arrived.synchronize()
            self._ids = self.returned[0].copy()
            for row, shaper in self.unsaid:
                shaper.note(int(self._ids[row]))
        return self._ids

    def wait(self) -> Sampled:
        """What the step gave, once the device is done with it."""
        return self.steps.finish(self)


class StagedSteps:
    """Launches steps one after the other on one stream. They are waited for in their order."""

    def __init__(
        self,
        model: CompiledModel,
        kv: KvCache,
        config: ResolvedConfig,
        sampler: Sampler,
        prompts: PromptReader,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._prompts = prompts
        self._device = torch.device(config.device)
        self._is_cuda = self._device.type == "cuda"
        self._staging = Staging(config, kv, self._device)
        self._unsettled: deque[StagedLaunch] = deque()
        self._aside = torch.cuda.Stream() if self._is_cuda else None
        self._returns = [
            torch.zeros(2 * config.max_step_tokens, dtype=torch.int32, pin_memory=self._is_cuda)
            for _ in range(config.overlap + 1)
        ]
        # Each is waited for before its turn comes again.
        self._events = [torch.cuda.Event() if self._is_cuda else None for _ in self._returns]
        self._turn = 0
        recorder: Recorder = CudaGraphs() if self._is_cuda else Rerun()
        # The largest first: the others fit into the memory that it takes.
        self._captured = {
            rows: self._capture(rows, recorder) for rows in sorted(config.graph_rows, reverse=True)
        }

    @torch.inference_mode()
    def launch(self, plan: Plan) -> StagedLaunch:
        """Queue a step; returns at once, except that shaped rows wait for earlier steps' ids."""
        try:
            return self._launch(plan)
        except Exception:
            if self._is_cuda:
                torch.cuda.synchronize()  # its inputs' host memory is about to be used again
            raise

    def _launch(self, plan: Plan) -> StagedLaunch:
        captured = self._captured_for(plan)
        frame = captured.frame if captured else self._staging.frame(size_of(plan))
        self._staging.put(plan, frame, self._sampler)
        chunks = self._prompts.chunks(plan)
        wanted = self._sampler.num_logprobs(plan)
        is_shaping = self._sampler.is_shaping(plan)
        if captured and not (chunks or wanted or is_shaping):
            captured.whole.replay()
            return self._send_back(plan, captured.whole.results[0])
        bad_requests: list[int] = []
        if chunks:
            x_TD = self._model.hidden(self._known_step(frame))
            bad_requests = self._prompts.read(chunks, partial(self._logits, x_TD))
            logits_SV = self._model.logits(x_TD, frame.step.sampled_rows)
            sums_S = logits_SV.sum(1)
        elif captured:
            captured.forward.replay()
            logits_SV, sums_S = captured.forward.results
        elif plan.num_sampled:
            logits_SV, sums_S = self._forward(frame)
        else:
            self._model.hidden(self._known_step(frame))
            return self._send_back(plan, frame.step.sampled_rows.new_empty(2, 0))
        logprobs = read_logprobs(logits_SV, wanted)
        unsaid: Unsaid = ()
        if is_shaping:
            self._settle()
            unsaid = self._sampler.shape_(plan, logits_SV[: plan.num_sampled])
        launched = self._send_back(plan, self._sample(frame, logits_SV, sums_S))
        launched.unsaid, launched.logprobs, launched.wanted = unsaid, logprobs, wanted
        launched.bad_requests = bad_requests
        launched.prompt_logprobs = self._prompts.take(plan)
        return launched

    @torch.inference_mode()
    def finish(self, launched: StagedLaunch) -> Sampled:
        """Wait for a step: the oldest that is not finished."""
        try:
            token_ids = launched.token_ids()
        finally:
            self._unsettled.remove(launched)
        is_finite_S = np.isfinite(launched.returned[1].view(np.float32))
        return Sampled(
            token_ids,
            _NO_ROWS if is_finite_S.all() else np.flatnonzero(~is_finite_S),
            self._told(launched, token_ids),
            launched.bad_requests,
            launched.prompt_logprobs,
            num_accepted(launched.plan, token_ids),
        )

    def _settle(self) -> None:
        """What earlier steps sampled is told to the shapers, in their order."""
        for launched in self._unsettled:
            launched.token_ids()

    def _told(
        self, launched: StagedLaunch, token_ids: NDArray[np.int32]
    ) -> dict[int, TokenLogprobs]:
        if not launched.logprobs:
            return {}
        with self._apart():
            return pick_logprobs(launched.logprobs, launched.wanted, token_ids)

    def _apart(self) -> AbstractContextManager[object]:
        """Beside the steps in flight: what is read here was computed by a step that is over."""
        return nullcontext() if self._aside is None else torch.cuda.stream(self._aside)

    def _captured_for(self, plan: Plan) -> _Captured | None:
        """Of the fewest rows that hold the plan; only where each request has one sampled token."""
        size = size_of(plan)
        if not size.num_tokens == size.num_requests == size.num_sampled:
            return None
        fitting = [rows for rows in self._captured if rows >= size.num_tokens]
        return self._captured[min(fitting)] if fitting else None

    @torch.inference_mode()
    def _capture(self, rows: int, recorder: Recorder) -> _Captured:
        frame = self._staging.frame(Size(rows, rows, rows))
        self._staging.put_padding(frame)

        def whole() -> tuple[Tensor, ...]:
            return (self._sample(frame, *self._forward(frame)),)

        return _Captured(
            frame, recorder.record(whole), recorder.record(partial(self._forward, frame))
        )

    def _forward(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """Logits, and their sums: one infinity or NaN in a row makes its sum one."""
        logits_SV = self._model(self._known_step(frame))
        return logits_SV, logits_SV.sum(1)

    def _known_step(self, frame: Frame) -> Step:
        """With the ids that only the device knows: each in its request's first row."""
        step, last_ids = frame.step, self._staging.last_ids
        sampled = last_ids.index_select(0, step.slots)
        if frame.size.num_tokens == frame.size.num_requests:
            ids_T = torch.where(step.token_ids_T < 0, sampled, step.token_ids_T)
        else:
            first_rows = step.query_starts[:-1].long()
            firsts = step.token_ids_T.index_select(0, first_rows)
            firsts = torch.where(firsts < 0, sampled, firsts)
            ids_T = step.token_ids_T.index_copy(0, first_rows, firsts)
        return replace(step, token_ids_T=ids_T)

    def _logits(self, x_TD: Tensor, rows: Tensor) -> Tensor:
        return self._model.logits(x_TD, rows.to(self._device))

    def _sample(self, frame: Frame, logits_SV: Tensor, sums_S: Tensor) -> Tensor:
        """Ids, and the bits of the sums: int32 [2, S]."""
        ids_S = kernels.sample(logits_SV, *frame.params)
        self._staging.last_ids.index_copy_(0, frame.sampled_slots, ids_S)
        return torch.stack([ids_S, sums_S.view(torch.int32)])

    def _send_back(self, plan: Plan, result: Tensor) -> StagedLaunch:
        buffer, event = self._returns[self._turn], self._events[self._turn]
        self._turn = (self._turn + 1) % len(self._returns)
        returned = buffer[: result.numel()].view(result.shape)
        returned.copy_(result, non_blocking=True)
        if event is not None:
            event.record()
        launched = StagedLaunch(self, plan, returned.numpy()[:, : plan.num_sampled], event)
        self._unsettled.append(launched)
        return launched
