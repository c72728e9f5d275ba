# SPDX-License-Identifier: Apache-2.0
"""An engine that says what a test tells it to, and a tokenizer whose tokens are bytes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from tokenlight import wire
from tokenlight.base.errors import EngineDead, EngineError, Overloaded, ServerStopping

EOS = 256
VOCAB_SIZE = 257
CONTEXT_TOKENS = 200


class ByteTokenizer:
    """Token i is byte i; 256 ends a text."""

    eos_token_ids = (EOS,)
    bos_token_id = None
    vocab_size = VOCAB_SIZE

    def encode(
        self, text: str, *, parse_special: bool = True, add_bos: bool | None = None
    ) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, with_special: bool = False) -> str:
        return bytes(i for i in token_ids if i < EOS).decode(errors="replace")

    def is_special(self, token_id: int) -> bool:
        return token_id >= EOS

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < EOS else b""


class PlainTemplate:
    """`role: text` lines, then `assistant:`."""

    source = None

    def alone(self, *, for_tools: bool) -> PlainTemplate:
        return self

    def render(
        self,
        messages: list[dict[str, str]],
        *,
        tools: object = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        lines = [f"{m['role']}: {m['content']}\n" for m in messages]
        lines += [f"{name}={value}\n" for name, value in variables.items()]
        return "".join(lines) + ("assistant:" if add_generation_prompt else "")


def told_of(token_ids: list[int], num_top: int | None) -> list[wire.TokenLogprobs] | None:
    """Token i has the log-probability -i / 100; the likeliest tokens are A, B, C ..."""
    if num_top is None:
        return None
    top = list(range(ord("A"), ord("A") + num_top))
    logprobs = [-math.inf if i == ord("!") else -i / 100 for i in token_ids if i != EOS]
    return [wire.TokenLogprobs(p, top, [-t / 100 for t in top]) for p in logprobs]


def told_of_prompt(token_ids: list[int], num_top: int | None) -> list[wire.PromptLogprobs] | None:
    """The same of all tokens but the first; token i has rank i."""
    if num_top is None:
        return None
    return [
        wire.PromptLogprobs(one.logprob, one.top_token_ids, one.top_logprobs, token_id)
        for token_id in token_ids[1:]
        for one in told_of([min(token_id, EOS - 1)], num_top) or ()
    ]


@dataclass
class Seen:
    """One request as it reached the engine, and whether its reader left early."""

    prompt_token_ids: list[int]
    sampling: wire.SamplingParams
    request_id: str
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    priority: int
    cache_salt: str
    was_aborted: bool = False
    is_cut: bool = False
    """Someone else asked for its end."""


@dataclass
class FakeEngine:
    """Speaks `script`, one token per delta every `token_s` seconds, then an end-of-text token.

    Its attributes may be changed from the test's thread; what must happen on the server's event
    loop goes through `RunningServer.call`.
    """

    script: str | Callable[[Seen], str] = "Hello, world"
    token_s: float = 0.0
    first_token_s: float = 0.0
    tokens_per_delta: int = 1
    cached_tokens: int = 0
    fail_after: int | None = None
    """Deltas after which the engine dies."""
    error_after: int | None = None
    """Deltas after which this request alone fails."""
    max_unfinished: int = 1024
    seen: list[Seen] = field(default_factory=list)
    fault: EngineError | None = None
    num_unfinished: int = 0
    facts: wire.ModelFacts = field(
        default_factory=lambda: wire.ModelFacts(
            max_model_tokens=CONTEXT_TOKENS,
            vocab_size=VOCAB_SIZE,
            block_tokens=16,
            num_blocks=100,
            kv_bytes=1,
            weights_bytes=1,
            load_s=0.0,
        )
    )

    def __post_init__(self) -> None:
        self.death: asyncio.Future[EngineDead] | None = None
        self.is_stopping = False
        self.cut = asyncio.Event()
        self.num_sampled_tokens = 0
        self.num_resets = 0

    def start(self) -> None:
        """On the server's event loop."""
        self.death = asyncio.get_running_loop().create_future()

    def die(self) -> None:
        assert self.death is not None
        self.fault = EngineDead("the engine was killed")
        self.cut.set()
        if not self.death.done():
            self.death.set_result(EngineDead("the engine was killed"))

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: wire.SamplingParams,
        *,
        request_id: str,
        max_new_tokens: int,
        stop_token_ids: Sequence[int] = (),
        priority: int = 0,
        cache_salt: str = "",
    ) -> AsyncGenerator[wire.Delta, None]:
        self._check()
        seen = Seen(
            list(prompt_token_ids),
            sampling,
            request_id,
            max_new_tokens,
            tuple(stop_token_ids),
            priority,
            cache_salt,
        )
        self.seen.append(seen)
        return self._speak(seen)

    def _check(self) -> None:
        if self.is_stopping:
            raise ServerStopping("the engine is stopping")
        if self.fault is not None:
            raise self.fault
        if self.num_unfinished >= self.max_unfinished:
            raise Overloaded(f"{self.num_unfinished} requests are unfinished")

    async def _speak(self, seen: Seen) -> AsyncGenerator[wire.Delta, None]:
        self.num_unfinished += 1
        is_finished = False
        try:
            async for delta in self._deltas(seen):
                is_finished = delta.finish_reason is not None
                yield delta
        except EngineError:
            is_finished = True
            raise
        finally:
            self.num_unfinished -= 1
            seen.was_aborted = not is_finished

    async def _deltas(self, seen: Seen) -> AsyncGenerator[wire.Delta, None]:
        text = self.script if isinstance(self.script, str) else self.script(seen)
        ids = [*text.encode(), EOS]
        is_cut = len(ids) > seen.max_new_tokens
        ids = ids[: seen.max_new_tokens]
        await self._pause(self.first_token_s)
        for place, start in enumerate(range(0, len(ids), self.tokens_per_delta)):
            await self._pause(self.token_s)
            if place == self.fail_after:
                self.die()
            if self.cut.is_set():
                raise (self.death is not None and self.death.done() and self.death.result()) or (
                    ServerStopping("cut by the drain limit")
                )
            if place == self.error_after:
                raise EngineError("this request produced NaN")
            if seen.is_cut:
                yield wire.Delta(
                    request_id=seen.request_id,
                    token_ids=[],
                    num_cached_tokens=0,
                    finish_reason="abort",
                    num_sampled_tokens=start,
                )
                return
            new = ids[start : start + self.tokens_per_delta]
            sampled = start + len(new)
            self.num_sampled_tokens += len(new)
            finish = None
            if sampled == len(ids):
                finish = "length" if is_cut else "stop"
            yield wire.Delta(
                request_id=seen.request_id,
                token_ids=[i for i in new if i != EOS],
                num_cached_tokens=self.cached_tokens,
                finish_reason=finish,
                num_sampled_tokens=sampled,
                logprobs=told_of(new, seen.sampling.num_logprobs),
                prompt_logprobs=(
                    told_of_prompt(seen.prompt_token_ids, seen.sampling.num_prompt_logprobs)
                    if start == 0
                    else None
                ),
            )

    async def _pause(self, time_s: float) -> None:
        if time_s and not self.cut.is_set():
            try:
                async with asyncio.timeout(time_s):
                    await self.cut.wait()
            except TimeoutError:
                pass
        else:
            await asyncio.sleep(0)

    def abort(self, request_id: str) -> None:
        next(s for s in self.seen if s.request_id == request_id).is_cut = True

    def reset_prefix_cache(self) -> None:
        self.num_resets += 1

    def health(self) -> EngineError | None:
        return self.fault

    def status(self) -> wire.Status:
        return wire.Status(
            num_steps=7,
            step_running_s=0.0,
            num_running=self.num_unfinished,
            num_waiting=3,
            num_free_blocks=75,
            num_blocks=100,
            num_cached_blocks=20,
            num_prompt_tokens=sum(len(s.prompt_token_ids) for s in self.seen),
            num_cached_tokens=11,
            num_sampled_tokens=self.num_sampled_tokens,
            num_preemptions=2,
        )

    async def wait_dead(self) -> EngineDead:
        assert self.death is not None
        return await asyncio.shield(self.death)

    async def close(self, drain_s: float = 0.0) -> None:
        self.is_stopping = True
        deadline_s = asyncio.get_running_loop().time() + drain_s
        while self.num_unfinished and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.01)
        self.cut.set()
