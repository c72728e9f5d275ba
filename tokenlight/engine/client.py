# SPDX-License-Identifier: Apache-2.0
"""AsyncLLM: the engine as seen from an asyncio program.

Starts the engine process, sends requests, streams deltas. Without torch, so that an API process
stays small and starts at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from tokenlight import wire
from tokenlight.base.clock import now_s
from tokenlight.base.errors import (
    EngineDead,
    EngineError,
    EngineStalled,
    InvalidRequest,
    Overloaded,
    ServerStopping,
)
from tokenlight.base.log import event, get_log
from tokenlight.config import EngineConfig
from tokenlight.engine.link import Link
from tokenlight.engine.request import make_request
from tokenlight.engine.stream import Stream

_log = get_log("client")

_STOPPING = "the server is stopping; send this again to another one, or when it is back"


class AsyncLLM:
    """One engine process and the requests in it. Belongs to the event loop that started it."""

    def __init__(self, *, max_unfinished: int) -> None:
        """Use `start`: an engine that is not ready is of no use."""
        self._max_unfinished = max_unfinished
        self._streams: dict[str, Stream] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self._closing: asyncio.Task[None] | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._link = Link(self._on_deltas, self._on_dead)
        self.facts: wire.ModelFacts
        """What the engine knows about the model."""

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        max_unfinished: int = 1024,
        max_silence_s: float | None = None,
        log_level: str = "warning",
    ) -> "AsyncLLM":
        """Spawn an engine and wait until it can serve.

        Args:
            config: what to run; `config.model.model` names a file that exists.
            max_unfinished: requests in the engine before `generate` raises `Overloaded`.
            max_silence_s: a request without a token for so long is ended with `EngineStalled`, time
                in the queue included; None: it waits as long as its caller does.
            log_level: of the engine process, which logs to this process's standard error.

        Raises:
            ConfigError, CheckpointError: the engine cannot start with this; its own words.
            EngineDead: it ended before it was ready.
        """
        llm = cls(max_unfinished=max_unfinished)
        try:
            llm.facts = await llm._link.start(config, log_level=log_level)
            if max_silence_s is not None:
                llm._watches.append(asyncio.create_task(llm._watch_silence(max_silence_s)))
            if config.parallel.num_ranks > 1:
                llm._watches.append(asyncio.create_task(llm._link.end_if_silent()))
        except BaseException:
            await llm.close()
            raise
        return llm

    @property
    def pid(self) -> int:
        """Of the engine process."""
        return self._link.pid

    @property
    def num_unfinished(self) -> int:
        """Requests in the engine, those included whose abort it has not yet confirmed."""
        return len(self._streams)

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
        """Generate for one prompt: what is wrong is raised here, iterating starts the request.

        Deltas that a slow reader did not fetch are merged into one. Closing the iterator at any
        point, or cancelling the task that reads it, aborts the request.

        Args:
            prompt_token_ids: at least one token of the model's vocabulary.
            sampling: how tokens are chosen.
            request_id: unique among unfinished requests.
            max_new_tokens: at least 1; lowered to what the context leaves.
            stop_token_ids: sampling one of these ends the request; it is counted and not delivered.
            priority: lower runs first.
            cache_salt: only requests of the same salt share computed prefixes.

        Raises:
            RequestError: the prompt or a parameter cannot be served.
            EngineError: the engine is dead, stalled, full or stopping; while iterating: it died, or
                failed this request.
        """
        request = make_request(
            self.facts,
            prompt_token_ids,
            sampling,
            request_id=request_id,
            max_new_tokens=max_new_tokens,
            stop_token_ids=stop_token_ids,
            priority=priority,
            cache_salt=cache_salt,
        )
        self._check_admission(request_id)
        return self._deltas(request)

    async def _deltas(self, request: wire.Generate) -> AsyncGenerator[wire.Delta, None]:
        self._check_admission(request.request_id)
        self._link.send(request)
        stream = self._streams[request.request_id] = Stream()
        self._is_idle.clear()
        try:
            while True:
                delta = await stream.next()
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            if not stream.is_finished:
                self.abort(request.request_id)

    def _check_admission(self, request_id: str) -> None:
        if self._is_stopping:
            raise ServerStopping(_STOPPING)
        fault = self._link.fault()
        if fault is not None:
            raise fault
        if request_id in self._streams:
            raise InvalidRequest(f"a request with the id {request_id!r} is running; choose another")
        if len(self._streams) >= self._max_unfinished:
            raise Overloaded(
                f"{len(self._streams)} requests are unfinished, the limit is "
                f"{self._max_unfinished}; send this again later, or raise --max-waiting"
            )

    def abort(self, request_id: str) -> None:
        """End a request early: its last delta has finish_reason "abort". Too late is harmless."""
        if request_id in self._streams:
            self._link.send(wire.Abort(request_id=request_id))

    def reset_prefix_cache(self) -> None:
        """What was computed so far serves no later prompt; running requests are not touched."""
        self._link.send(wire.ResetPrefixCache())

    def health(self) -> EngineError | None:
        """Why a new request would not be served, judged now; None when it would be."""
        return self._link.fault()

    def status(self) -> wire.Status:
        """The engine's latest heartbeat, at most about a second old while it is healthy."""
        return self._link.status()

    async def wait_dead(self) -> EngineDead:
        """Returns when the engine process has ended, asked to or not; the error says how."""
        return EngineDead(await asyncio.shield(self._dead))

    async def close(self, drain_s: float = 0.0) -> None:
        """Refuse new requests, give running ones at most `drain_s` seconds, then end the engine."""
        self._is_stopping = True
        if self._streams:
            try:
                async with asyncio.timeout(drain_s):
                    await self._is_idle.wait()
            except TimeoutError:
                _log.warning(event("drain_timeout", drain_s=drain_s, num_cut=len(self._streams)))
        for stream in self._take_streams():
            stream.fail(ServerStopping(_STOPPING))
        for watch in self._watches:
            watch.cancel()
        if self._closing is None:
            self._closing = asyncio.create_task(self._link.close())
        await asyncio.shield(self._closing)

    def _on_deltas(self, deltas: list[wire.Delta]) -> None:
        for delta in deltas:
            stream = self._streams.get(delta.request_id)
            if stream is None:
                continue  # cut short by `close`
            if delta.finish_reason == "error":
                stream.fail(EngineError(f"request {delta.request_id}: {delta.error}"))
            else:
                stream.push(delta)
            if delta.finish_reason is not None:
                del self._streams[delta.request_id]
        if not self._streams:
            self._is_idle.set()

    async def _watch_silence(self, max_silence_s: float) -> None:
        """For ever, look now and then; the engine confirms the abort and so frees the place."""
        while True:
            await asyncio.sleep(min(1.0, max_silence_s / 4))
            oldest_s = now_s() - max_silence_s
            for request_id, stream in self._streams.items():
                if stream.heard_s < oldest_s and not stream.is_finished:
                    stream.fail(
                        EngineStalled(
                            f"request {request_id} got no token for {max_silence_s:g} s and was "
                            f"ended; the server is overloaded or stuck: send it again later"
                        )
                    )
                    self.abort(request_id)

    def _on_dead(self, reason: str) -> None:
        self._dead.set_result(reason)
        for stream in self._take_streams():
            stream.fail(EngineDead(reason))

    def _take_streams(self) -> list[Stream]:
        streams = list(self._streams.values())
        self._streams.clear()
        self._is_idle.set()
        return streams
