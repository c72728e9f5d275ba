# SPDX-License-Identifier: Apache-2.0
"""The one loop: drain the inbox, submit, plan, execute, commit, send.

Overlap is a number, the steps that may be in flight while the next one is planned: the one that the
scheduler was made with.
"""

import secrets
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np

from tokenlight import wire
from tokenlight.base.clock import now_s, now_us
from tokenlight.base.log import event, get_log
from tokenlight.control import Delta, Plan, Planner
from tokenlight.engine.heartbeat import Board
from tokenlight.runner import MAX_FORCED_TOKENS, Launched, ModelRunner, Sampled
from tokenlight.text.grammar.matching import Rules

_log = get_log("engine")

_MAX_BAD_STEPS = 3
_REASONS: dict[str | None, wire.FinishReason | None] = {
    None: None,
    "stop": "stop",
    "length": "length",
}
_NOT_FINITE = (
    "the model gave logits that are not finite for this request, so no token can be chosen; "
    "other requests go on; if it happens again, the checkpoint may be damaged"
)


class Mail(Protocol):
    """What the loop needs of `engine/mail.py`."""

    def wait(self) -> None: ...
    def wake(self) -> None: ...
    def read(self) -> Iterable[wire.ToEngine]: ...
    def send(self, message: wire.FromEngine, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was launched and not yet committed."""

    plan: Plan
    launched: Launched | Exception
    """What is to be waited for, or what its launch raised."""

    def wait(self) -> Sampled | Exception:
        """Whatever a model, a kernel or a device raises ends this step's requests, no others."""
        if isinstance(self.launched, Exception):
            return self.launched
        try:
            return self.launched.wait()
        except Exception as fault:
            _log.exception(event("step_failed", num_requests=self.plan.num_requests))
            return fault


@dataclass(frozen=True, slots=True)
class Held:
    """A request whose grammar is being compiled: it takes no place in a step that would wait."""

    message: wire.Generate
    compiling: Future[Rules]


class Loop:
    """Owns the scheduler and the runner; runs on one thread until `is_stopping`."""

    def __init__(
        self,
        scheduler: Planner,
        runner: ModelRunner,
        mail: Mail,
        board: Board,
        *,
        overlap: int,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._mail = mail
        self._board = board
        self._overlap = overlap
        self._numbers = count()
        # Unfinished requests: the client's name to the scheduler's number, and back.
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._held: dict[str, Held] = {}
        self._in_flight: deque[Flight] = deque()
        self._num_bad_steps = 0
        self._cache_age = 0
        self.is_stopping = False

    @property
    def num_held(self) -> int:
        """Requests that wait for their grammars."""
        return len(self._held)

    def run(self) -> None:
        """Returns when told to stop; raises when step after step fails."""
        in_flight, is_idle = self._in_flight, True
        while self._drain(wait=is_idle):
            plan = self._scheduler.plan(now_us())
            if plan is not None:
                in_flight.append(self._launch(plan))
            is_idle = not in_flight  # else what lands now may make room for another plan
            if in_flight and (plan is None or len(in_flight) > self._overlap):
                self._land(in_flight.popleft())

    def _drain(self, *, wait: bool) -> bool:
        if wait:
            self._fail_stuck()
            self._mail.wait()
        for message in self._mail.read():
            match message:
                case wire.Generate():
                    self._accept(message)
                case wire.Abort():
                    self._abort(message)
                case wire.ResetPrefixCache():
                    self._cache_age += 1
        if self._held:
            self._release()
        return not self.is_stopping

    def _release(self) -> None:
        for name, held in list(self._held.items()):
            if not held.compiling.done():
                continue
            del self._held[name]
            if fault := held.compiling.exception():
                _log.error(event("grammar_not_compiled", request=name, fault=fault))
                self._send([_last(name, "error", f"its grammar cannot be compiled: {fault}")])
            else:
                self._submit(held.message)

    def _accept(self, message: wire.Generate) -> None:
        try:
            compiling = self._runner.compiling(message.sampling)
        except Exception as fault:
            self._refuse(message, fault)
            return
        if compiling is None:
            self._submit(message)
            return
        self._held[message.request_id] = Held(message, compiling)
        compiling.add_done_callback(lambda _: self._mail.wake())

    def _submit(self, message: wire.Generate) -> None:
        number = next(self._numbers)
        try:
            prompt_token_ids = np.asarray(wire.unpack_token_ids(message.prompt_token_ids))
            self._runner.add(number, message.sampling, prompt_token_ids, message.stop_token_ids)
            self._scheduler.submit(
                number,
                prompt_token_ids,
                max_new_tokens=message.max_new_tokens,
                stop_token_ids=np.array(message.stop_token_ids, np.int32),
                priority=message.priority,
                cache_salt=self._salt(message),
            )
        except Exception as fault:
            self._runner.remove(number)
            self._refuse(message, fault)
            return
        self._ids[message.request_id] = number
        self._names[number] = message.request_id

    def _refuse(self, message: wire.Generate, fault: Exception) -> None:
        """Whatever is wrong with one request ends no other."""
        _log.error(event("request_refused", request=message.request_id, fault=fault))
        self._send([_last(message.request_id, "error", str(fault))])

    def _salt(self, message: wire.Generate) -> bytes:
        """Blocks of an earlier age are never asked for again: that is what a reset is."""
        if message.sampling.num_prompt_logprobs is not None:
            return secrets.token_bytes(32)  # nobody else's: all rows of this prompt are wanted
        asked = message.cache_salt
        return f"{self._cache_age}/{asked}".encode() if self._cache_age or asked else b""

    def _abort(self, message: wire.Abort) -> None:
        if self._held.pop(message.request_id, None):
            self._send([_last(message.request_id, "abort")])
            return
        number = self._ids.get(message.request_id)
        if number is None:
            return  # it finished meanwhile, and its last delta is on its way
        self._scheduler.abort(number)
        self._forget(number)
        self._board.stats = self._scheduler.stats()
        self._send([_last(message.request_id, "abort")])

    def _launch(self, plan: Plan) -> Flight:
        self._board.step_started_s = now_s()
        try:
            return Flight(plan, self._runner.launch(plan))
        except Exception as fault:  # it ends this step's requests, not the engine
            _log.exception(event("step_failed", num_requests=plan.num_requests))
            return Flight(plan, fault)

    def _land(self, flight: Flight) -> None:
        plan, outcome = flight.plan, flight.wait()
        if isinstance(outcome, Sampled):
            self._num_bad_steps = 0
            token_ids = outcome.token_ids
            told = _by_request(plan, outcome)
            prompts = outcome.prompt_logprobs
            num_accepted = outcome.num_accepted
            failed = self._fail(_bad_requests(plan, outcome), _NOT_FINITE)
        else:
            self._num_bad_steps += 1
            token_ids = np.zeros(plan.num_sampled, np.int32)
            told, prompts = {}, {}
            num_accepted = np.ones(len(np.unique(plan.sampled_requests)), np.int32)
            failed = self._fail(
                plan.request_ids, f"the step raised {type(outcome).__name__}: {outcome}"
            )
        deltas = self._scheduler.commit(plan.guard, token_ids, num_accepted)
        self._propose_forced(deltas)
        self._note_step()
        self._send(
            failed
            + [
                wire.Delta(
                    request_id=(
                        self._names[d.id] if d.finish_reason is None else self._forget(d.id)
                    ),
                    token_ids=d.token_ids,
                    num_cached_tokens=d.num_cached_tokens,
                    finish_reason=_REASONS[d.finish_reason],
                    num_sampled_tokens=d.num_sampled_tokens,
                    logprobs=told[d.id][: len(d.token_ids)]
                    if d.token_ids and d.id in told
                    else None,
                    prompt_logprobs=prompts.get(d.id),
                )
                for d in deltas
            ]
        )
        if isinstance(outcome, Exception) and self._num_bad_steps >= _MAX_BAD_STEPS:
            raise outcome

    def _propose_forced(self, deltas: Iterable[Delta]) -> None:
        """What a grammar leaves no choice in is computed in one step; of many requests in some."""
        if self._in_flight:
            return  # a step is under way whose token comes before these
        spare = MAX_FORCED_TOKENS
        for delta in deltas:
            if not spare:
                return
            if delta.finish_reason is None and (forced := self._runner.forced(delta.id)[:spare]):
                self._scheduler.propose(delta.id, np.array(forced, np.int32))
                spare -= len(forced)

    def _fail(self, numbers: Iterable[int], why: str) -> list[wire.Delta]:
        """End requests with an error, before their step is committed."""
        deltas = []
        for number in map(int, numbers):
            if number in self._names:  # else it was aborted while its step was in flight
                self._scheduler.abort(number)
                deltas.append(_last(self._forget(number), "error", why))
                self._board.num_failed += 1
                _log.error(event("request_failed", request=deltas[-1].request_id, why=why))
        return deltas

    def _fail_stuck(self) -> None:
        """Nothing runs, nothing can be planned, yet requests wait: do not hang them for ever."""
        if self._names:
            self._send(self._fail(list(self._names), "the scheduler cannot place this request"))

    def _forget(self, number: int) -> str:
        name = self._names.pop(number)
        del self._ids[name]
        self._runner.remove(number)
        return name

    def _note_step(self) -> None:
        board = self._board
        if board.step_started_s is not None:
            board.slowest_step_s = max(board.slowest_step_s, now_s() - board.step_started_s)
        board.step_started_s = now_s() if self._in_flight else None
        board.stats = self._scheduler.stats()

    def _send(self, deltas: list[wire.Delta]) -> None:
        if deltas:
            self._mail.send(wire.Deltas(deltas=deltas))


def _bad_requests(plan: Plan, outcome: Sampled) -> list[int]:
    """Requests of which something was not finite, by the scheduler's number."""
    bad = list(outcome.bad_requests)
    if len(outcome.bad_rows):
        bad += plan.request_ids[plan.sampled_requests[outcome.bad_rows]].tolist()
    return bad


def _by_request(plan: Plan, outcome: Sampled) -> dict[int, list[wire.TokenLogprobs]]:
    """What requests are told of their tokens, by the scheduler's number."""
    told: dict[int, list[wire.TokenLogprobs]] = {}
    for row, logprobs in sorted(outcome.logprobs.items()):
        told.setdefault(int(plan.request_ids[plan.sampled_requests[row]]), []).append(logprobs)
    return told


def _last(request_id: str, reason: wire.FinishReason, why: str | None = None) -> wire.Delta:
    """The end of a request that the scheduler did not end."""
    return wire.Delta(
        request_id=request_id, token_ids=[], num_cached_tokens=0, finish_reason=reason, error=why
    )
