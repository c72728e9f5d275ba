# SPDX-License-Identifier: Apache-2.0
"""LLM: the engine as seen from a script or a notebook. Text in, text out, and the call waits.

It drives an `AsyncLLM` on a thread of its own, so there is one engine and one loop whichever door
is used, no `if __name__ == "__main__"` is asked for, and a running event loop (a notebook's) is not
in the way.
"""

import asyncio
import dataclasses
import threading
import weakref
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tokenlight.base.env import read_env
from tokenlight.base.errors import InvalidRequest, ServerStopping
from tokenlight.base.log import event, get_log
from tokenlight.checkpoint import locate_model, open_checkpoint
from tokenlight.config import EngineConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.text import AnswerDecoder, ChatTemplate, Tokenizer
from tokenlight.text.conversation import Conversation, mend, read_messages
from tokenlight.text.dialect import Dialect
from tokenlight.wire import FinishReason, SamplingParams

Result = TypeVar("Result")

_log = get_log("llm")

_CLOSE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What one prompt got."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_cached_tokens: int
    num_sampled_tokens: int


class LLM:
    """One model, loaded. Use it in a `with` statement, or `close` it; threads may share it.

    with LLM(model="model.gguf") as llm:
        print(llm.generate("The capital of France is", max_tokens=8)[0].text)
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: EngineConfig | None = None,
        log_level: str = "warning",
    ) -> None:
        """Start the engine; returns when it is ready.

        Args:
            model: as `tokenlight serve` takes it: a file, a folder or a Hub id, fetched when it is
                not there yet; None for the config's, or the default model.
            config: everything else that can be chosen.
            log_level: debug, info, warning or error.
        """
        config = _with_model_files(config or EngineConfig(), model)
        has_weights = config.model.load_format != "dummy"
        checkpoint = open_checkpoint(
            Path(config.model.model), has_weights=has_weights, tokenizer=config.model.tokenizer
        )
        self._tokenizer = Tokenizer.from_checkpoint(checkpoint)
        self._template = ChatTemplate.from_checkpoint(checkpoint)
        self._names = count()
        # More than fit in a step, so that the scheduler always has the next one at hand.
        self._room = asyncio.Semaphore(4 * config.scheduler.max_num_requests)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tokenlight-llm", daemon=True
        )
        self._thread.start()
        try:
            self._engine = self._wait(
                AsyncLLM.start(config, max_unfinished=1 << 31, log_level=log_level)
            )
        except BaseException:
            _end_loop(self._loop, self._thread)
            raise
        self._finalizer = weakref.finalize(self, _shut, self._engine, self._loop, self._thread)

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> list[Completion]:
        """Complete prompts, all at once.

        Args:
            prompts: one text, several, one list of token ids, or several.
            sampling: for all prompts, or one each; default `SamplingParams()`. Equal seeds give
                equal numbers.
            max_tokens: for each prompt; default: as many as the context leaves.
            stop: texts that end a completion; they are not part of it.

        Returns:
            One completion per prompt, in order.

        Raises:
            RequestError, EngineError: the first fault ends the other prompts as well.
        """
        if not self._finalizer.alive:
            raise ServerStopping("this LLM was closed; make another")
        token_ids = [self._encode(prompt) for prompt in _prompts(prompts)]
        each = _each(SamplingParams() if sampling is None else sampling, len(token_ids))
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        return self._wait(
            _all(
                self._complete(ids, params, max_tokens, stops)
                for ids, params in zip(token_ids, each, strict=True)
            )
        )

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        sampling: SamplingParams | None = None,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> Completion:
        """Answer messages, dicts with `role` and `content`. The rest as in `generate`."""
        conversation, _ = mend(Conversation(turns=read_messages(messages)))
        # The template writes the begin-of-text token itself where the model wants one.
        ids = self._tokenizer.encode(self._dialect.render(conversation), add_bos=False)
        return self.generate([ids], sampling, max_tokens=max_tokens, stop=stop)[0]

    @cached_property
    def _dialect(self) -> Dialect:
        """Found out at the first chat: who only completes texts need not wait for it."""
        return Dialect.of(self._template, self._tokenizer)

    def close(self) -> None:
        """End the engine; running calls fail. Harmless the second time."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _encode(self, prompt: str | Sequence[int]) -> list[int]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    async def _complete(
        self,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        max_tokens: int | None,
        stops: tuple[str, ...],
    ) -> Completion:
        decoder = AnswerDecoder(self._tokenizer, stops=stops)
        text = ""
        async with self._room:
            deltas = self._engine.generate(
                prompt_token_ids,
                sampling,
                request_id=f"llm-{next(self._names)}",
                max_new_tokens=self._engine.facts.max_model_tokens
                if max_tokens is None
                else max_tokens,
                stop_token_ids=self._tokenizer.eos_token_ids,
            )
            async with aclosing(deltas):
                async for delta in deltas:
                    text += decoder.push(delta.token_ids)
                    if decoder.is_stopped:
                        break
        if not decoder.is_stopped:
            text += decoder.flush()
        is_stopped = decoder.is_stopped
        return Completion(
            text=text,
            token_ids=decoder.take()[0],
            finish_reason="stop" if is_stopped else delta.finish_reason or "abort",
            num_prompt_tokens=len(prompt_token_ids),
            num_cached_tokens=delta.num_cached_tokens,
            num_sampled_tokens=decoder.num_tokens if is_stopped else delta.num_sampled_tokens,
        )

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here ends the requests there
            raise


def _with_model_files(config: EngineConfig, model: str | Path | None) -> EngineConfig:
    """The config with a path for a model, and with what the environment says."""
    env = read_env()
    asked = config.model.model if model is None else str(model)
    path = locate_model(
        asked,
        env.cache_dir,
        lambda progress: _log.info(event("fetching", what=progress.text)),
        revision=config.model.revision,
    )
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, model=str(path)),
        num_threads=config.num_threads or env.num_threads,
    )


def _prompts(prompts: Any) -> list[Any]:
    """One prompt or several, as several."""
    is_one = isinstance(prompts, str) or (
        len(prompts) > 0 and not isinstance(prompts[0], str | Sequence)
    )
    return [prompts] if is_one else list(prompts)


def _each(
    sampling: SamplingParams | Sequence[SamplingParams], num_prompts: int
) -> Sequence[SamplingParams]:
    if isinstance(sampling, SamplingParams):
        return [sampling] * num_prompts
    is_sequence = isinstance(sampling, Sequence) and not isinstance(sampling, str)
    wrong = (
        [s for s in sampling if not isinstance(s, SamplingParams)] if is_sequence else [sampling]
    )
    if wrong:
        raise InvalidRequest(
            f"sampling must be SamplingParams, or one each, got {type(wrong[0]).__name__}",
            param="sampling",
        )
    if len(sampling) != num_prompts:
        raise InvalidRequest(
            f"there are {num_prompts} prompts and {len(sampling)} sampling parameters; "
            f"give one, or one each",
            param="sampling",
        )
    return sampling


async def _all(works: Iterable[Coroutine[Any, Any, Completion]]) -> list[Completion]:
    """Gather; when one fails the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _shut(engine: AsyncLLM, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Must not refer to the LLM: it runs when that is collected, on whatever thread, or at exit."""
    if (
        threading.current_thread() is thread
    ):  # collected on our own loop's thread: waiting for it would be for ever
        loop.create_task(engine.close()).add_done_callback(lambda _: loop.stop())
        return
    asyncio.run_coroutine_threadsafe(engine.close(), loop).result(_CLOSE_S)
    _end_loop(loop, thread)


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
