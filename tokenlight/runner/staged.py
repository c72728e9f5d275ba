# SPDX-License-Identifier: Apache-2.0
"""Steps on a device of its own: staged, replayed where they were recorded, and waited for later.

In steady state the device never waits for the host: a step reads the ids that the step before it
sampled where they lie. Rows whose logits are shaped by what was said (grammars, penalties) need
those ids on the host: their step's forward is queued first, and only its sampling waits.

Shapes: T tokens, S sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, TypeVarTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import Plan
from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache
from tokenlight.runner.logprobs import pick_logprobs, read_logprobs
from tokenlight.runner.prompt_logprobs import PromptReader
from tokenlight.runner.ranks.lost import in_step
from tokenlight.runner.ranks.mirror import Mirror, Verb
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampled import Sampled
from tokenlight.runner.sampler import RowParams, Sampler, Unsaid, num_accepted
from tokenlight.runner.staged_model import StagedModel
from tokenlight.runner.staging import Frame, size_of
from tokenlight.wire import PromptLogprobs, TokenLogprobs

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

_NO_ROWS = np.zeros(0, np.intp)


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
        mirror: Mirror | None = None,
    ) -> None:
        self._mirror = mirror
        self._model = StagedModel(model, kv, config, self._choose)
        self._sampler = sampler
        self._prompts = prompts
        self._is_cuda = config.device == "cuda"
        self._unsettled: deque[StagedLaunch] = deque()
        self._aside = torch.cuda.Stream() if self._is_cuda else None
        self._returns = [
            torch.zeros(2 * config.max_step_tokens, dtype=torch.int32, pin_memory=self._is_cuda)
            for _ in range(config.overlap + 1)
        ]
        # Each is waited for before its turn comes again.
        self._events = [torch.cuda.Event() if self._is_cuda else None for _ in self._returns]
        self._turn = 0

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
        model, staging = self._model, self._model.staging
        captured = model.captured_for(size_of(plan))
        frame = captured.frame if captured else staging.frame(size_of(plan))
        put = staging.put(plan, frame, self._sampler)
        chunks = self._prompts.chunks(plan)
        wanted = self._sampler.num_logprobs(plan)
        is_shaping = self._sampler.is_shaping(plan)
        is_whole = captured is not None and not (chunks or wanted or is_shaping)
        if self._mirror is not None:
            has_parts = bool(chunks) or not plan.num_sampled
            verb = Verb.WHOLE if is_whole else Verb.HIDDEN if has_parts else Verb.FORWARD
            self._mirror.put(verb, frame.size, put)
        if captured and is_whole:
            self._run(captured.whole.replay)
            return self._send_back(plan, captured.whole.results[0])
        bad_requests: list[int] = []
        if chunks:
            x_TD = self._run(model.hidden, frame)
            bad_requests = self._prompts.read(chunks, partial(self._logits, x_TD))
            if self._mirror is not None:
                self._mirror.sampled()
            logits_SV = self._run(model.logits, x_TD, frame.step.sampled_rows)
            sums_S = logits_SV.sum(1)
        elif captured:
            self._run(captured.forward.replay)
            logits_SV, sums_S = captured.forward.results
        elif plan.num_sampled:
            logits_SV, sums_S = self._run(model.forward, frame)
        else:
            self._run(model.hidden, frame)
            return self._send_back(plan, frame.step.sampled_rows.new_empty(2, 0))
        logprobs = read_logprobs(logits_SV, wanted)
        unsaid: Unsaid = ()
        if is_shaping:
            unsaid = self._shape(plan, frame, logits_SV, sums_S)
        launched = self._send_back(plan, self._run(model.choose, frame, logits_SV, sums_S))
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

    def _choose(self, logits_SV: Tensor, params: RowParams) -> Tensor:
        ids_S = kernels.sample(logits_SV, *params)
        if self._mirror is not None:
            self._mirror.share(ids_S)
        return ids_S

    def _logits(self, x_TD: Tensor, rows_S: Tensor) -> Tensor:
        if self._mirror is not None:
            self._mirror.logits(rows_S.numpy())
        return self._run(self._model.logits, x_TD, rows_S)

    def _run(self, call: Callable[[*Args], Result], *args: *Args) -> Result:
        """What every rank does: where there are others, it does not fail on this one alone."""
        with nullcontext() if self._mirror is None else in_step():
            return call(*args)

    def _shape(self, plan: Plan, frame: Frame, logits_SV: Tensor, sums_S: Tensor) -> Unsaid:
        self._settle()
        try:
            return self._sampler.shape_(plan, logits_SV[: plan.num_sampled])
        except Exception:
            if self._mirror is not None:
                self._model.choose(frame, logits_SV, sums_S)  # the other ranks wait for ids
            raise

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
