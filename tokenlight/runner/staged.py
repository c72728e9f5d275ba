# SPDX-License-Identifier: Apache-2.0
"""Steps on a device of its own: staged, replayed where they were recorded, and waited for later.

In steady state the device never waits for the host: a step reads the ids that the step before it
sampled where they lie. Rows whose logits are shaped by what was said (grammars, penalties) need
those ids on the host: their step's forward is queued first, and only its sampling waits.

Shapes: T tokens, S sampled rows of a step, A of its frames, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TypeVar, TypeVarTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight import kernels
from tokenlight.control import Plan, plans_by_group
from tokenlight.models import CompiledModel
from tokenlight.nn import KvCache
from tokenlight.runner.logprobs import pick_logprobs, read_logprobs
from tokenlight.runner.prompt_logprobs import PromptReader
from tokenlight.runner.ranks.groups import cut_rows
from tokenlight.runner.ranks.lost import in_step
from tokenlight.runner.ranks.mirror import Mirror, Verb
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampled import Sampled
from tokenlight.runner.sampler import RowParams, Sampler, Unsaid, num_accepted
from tokenlight.runner.staged_model import Frames, Place, StagedModel
from tokenlight.runner.staging import Put, size_of, sizes_of
from tokenlight.wire import PromptLogprobs, TokenLogprobs

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

Rows = slice | NDArray[np.intp]

_NO_ROWS = np.zeros(0, np.intp)


@dataclass(slots=True, eq=False)
class StagedLaunch:
    """A step that is queued on the device."""

    steps: StagedSteps
    plan: Plan
    returned: NDArray[np.int32]
    """On the host, int32 [2, A], after `arrived`: ids, and the bits of the logits' sums."""
    arrived: torch.cuda.Event | None
    rows: Rows
    """Where the plan's sampled rows lie."""
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
            self._ids = self.returned[0][self.rows].copy()
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
        self._num_groups = config.num_groups
        place = mirror.place if mirror else Place()
        self._model = StagedModel(model, kv, config, self._choose, place)
        self._sampler = sampler
        self._prompts = prompts
        self._is_cuda = config.device == "cuda"
        self._unsettled: deque[StagedLaunch] = deque()
        self._aside = torch.cuda.Stream() if self._is_cuda else None
        self._returns = [
            torch.zeros(
                2 * config.num_groups * config.max_step_tokens,
                dtype=torch.int32,
                pin_memory=self._is_cuda,
            )
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
            for staging in self._model.stagings:
                staging.doubt()
            if self._is_cuda:
                torch.cuda.synchronize()  # its inputs' host memory is about to be used again
            raise

    def _launch(self, plan: Plan) -> StagedLaunch:
        model = self._model
        plans = plans_by_group(plan, self._num_groups)
        captured = model.captured_for([size_of(each) for each in plans])
        frames = captured.frames if captured else model.frames(sizes_of(plans))
        puts = self._put(plans, frames)
        rows = _rows(plans, frames)
        chunks = self._prompts.chunks(plan)
        wanted = self._sampler.num_logprobs(plan)
        is_shaping = self._sampler.is_shaping(plan)
        is_whole = captured is not None and not (chunks or wanted or is_shaping)
        if self._mirror is not None:
            has_parts = bool(chunks) or not plan.num_sampled
            verb = Verb.WHOLE if is_whole else Verb.HIDDEN if has_parts else Verb.FORWARD
            self._mirror.put(verb, frames.sizes, puts)
        if captured and is_whole:
            self._run(captured.whole.replay)
            return self._send_back(plan, captured.whole.results[0], rows)
        bad_requests: list[int] = []
        if chunks:
            x_TD = self._run(model.hidden, frames)
            logits_of = partial(self._logits, x_TD, _first_tokens(plans))
            bad_requests = self._prompts.read(chunks, logits_of)
            if self._mirror is not None:
                self._mirror.sampled()
            sampled_rows = frames.own.step.sampled_rows
            logits_AV = self._run(model.logits, x_TD, sampled_rows, frames.num_rows)
            sums_A = self._run(lambda: logits_AV.sum(1))
        elif captured:
            self._run(captured.forward.replay)
            logits_AV, sums_A = captured.forward.results
        elif plan.num_sampled:
            logits_AV, sums_A = self._run(model.forward, frames)
        else:
            self._run(model.hidden, frames)
            return self._send_back(plan, frames.own.step.sampled_rows.new_empty(2, 0), rows)
        logprobs: Mapping[int, Tensor] = {}
        if wanted:
            logprobs = self._run(lambda: read_logprobs(logits_AV[rows], wanted))
        unsaid: Unsaid = ()
        if is_shaping:
            unsaid = self._shape(plan, frames, rows, logits_AV, sums_A)
        ids_and_sums = self._run(model.choose, frames, logits_AV, sums_A)
        launched = self._send_back(plan, ids_and_sums, rows)
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
        is_finite_S = np.isfinite(launched.returned[1][launched.rows].view(np.float32))
        return Sampled(
            token_ids,
            _NO_ROWS if is_finite_S.all() else np.flatnonzero(~is_finite_S),
            self._told(launched, token_ids),
            launched.bad_requests,
            launched.prompt_logprobs,
            num_accepted(launched.plan, token_ids),
        )

    def _put(self, plans: Sequence[Plan], frames: Frames) -> list[Put]:
        each = zip(self._model.stagings, plans, (frames.own, *frames.others), strict=True)
        return [staging.put(plan, frame, self._sampler) for staging, plan, frame in each]

    def _choose(self, logits_AV: Tensor, params: Sequence[RowParams], num_rows: int) -> Tensor:
        of_all = params[0] if len(params) == 1 else map(torch.cat, zip(*params, strict=True))
        ids_A = kernels.sample(logits_AV, *of_all)
        if self._mirror is not None:
            self._mirror.share(ids_A)
        return ids_A

    def _logits(self, x_TD: Tensor, first_tokens: NDArray[np.int32], rows_S: Tensor) -> Tensor:
        """Of ascending rows of a step, whichever group's they are."""
        rows = cut_rows(rows_S.numpy(), first_tokens)
        if self._mirror is not None:
            self._mirror.logits(rows)
        own_S = torch.from_numpy(rows[0])
        return self._run(self._model.logits, x_TD, own_S, [len(each) for each in rows])

    def _run(self, call: Callable[[*Args], Result], *args: *Args) -> Result:
        """What every rank does: where there are others, it does not fail on this one alone."""
        with nullcontext() if self._mirror is None else in_step():
            return call(*args)

    def _shape(
        self, plan: Plan, frames: Frames, rows: Rows, logits_AV: Tensor, sums_A: Tensor
    ) -> Unsaid:
        try:
            self._settle()
            logits_SV = logits_AV[rows]
            unsaid = self._sampler.shape_(plan, logits_SV)
            if not isinstance(rows, slice):
                logits_AV[rows] = logits_SV
            return unsaid
        except Exception:
            if self._mirror is not None:
                # The other ranks wait for ids.
                self._run(self._model.choose, frames, logits_AV, sums_A)
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

    def _send_back(self, plan: Plan, result: Tensor, rows: Rows) -> StagedLaunch:
        buffer, event = self._returns[self._turn], self._events[self._turn]
        self._turn = (self._turn + 1) % len(self._returns)
        returned = buffer[: result.numel()].view(result.shape)
        returned.copy_(result, non_blocking=True)
        if event is not None:
            event.record()
        launched = StagedLaunch(self, plan, returned.numpy(), event, rows)
        self._unsettled.append(launched)
        return launched


def _rows(plans: Sequence[Plan], frames: Frames) -> Rows:
    """Where the sampled rows of a step lie among those of its frames: one group's after another."""
    if len(plans) == 1:
        return slice(plans[0].num_sampled)
    firsts = accumulate(frames.num_rows, initial=0)
    own = [first + np.arange(p.num_sampled) for first, p in zip(firsts, plans, strict=False)]
    return np.concatenate(own)


def _first_tokens(plans: Sequence[Plan]) -> NDArray[np.int32]:
    """Where each group's tokens begin among those of the step, and their end."""
    return np.cumsum([0, *(plan.num_tokens for plan in plans)], dtype=np.int32)
