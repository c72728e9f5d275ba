# SPDX-License-Identifier: Apache-2.0
"""What a route may use: one object, made at start, reached through the request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

from starlette.datastructures import Headers
from starlette.requests import Request

from tokenlight import wire
from tokenlight.base.clock import unix_s
from tokenlight.base.errors import EngineError, InvalidRequest, ModelNotFound, ServerStopping
from tokenlight.config import ServerConfig
from tokenlight.server.metrics import Metrics
from tokenlight.server.prefixes import RecentPrompts
from tokenlight.server.store import ResponseStore, owner_of
from tokenlight.text import Tokenizer
from tokenlight.text.dialect import Dialect


class Engine(Protocol):
    """What the server needs of an engine: `AsyncLLM` is one."""

    @property
    def facts(self) -> wire.ModelFacts: ...
    @property
    def num_unfinished(self) -> int: ...

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
    ) -> AsyncGenerator[wire.Delta, None]: ...

    def abort(self, request_id: str) -> None: ...

    def reset_prefix_cache(self) -> None: ...

    def health(self) -> EngineError | None: ...

    def status(self) -> wire.Status: ...

    async def wait_dead(self) -> Exception: ...

    async def close(self, drain_s: float = 0.0) -> None: ...


class Lifecycle:
    """Whether the server takes new work. It stops once and never starts again."""

    def __init__(self) -> None:
        self.is_stopping = False

    def stop(self) -> None:
        self.is_stopping = True

    def check_open(self) -> None:
        """Raises ServerStopping once the server drains."""
        if self.is_stopping:
            raise ServerStopping(
                "this server is shutting down and takes no new requests; send them to another "
                "server, or again when this one is back"
            )


class Running:
    """Requests in the engine, by the names that clients know them by."""

    def __init__(self) -> None:
        self._engine_ids: dict[str, set[str]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    @contextmanager
    def hold(self, names: Sequence[str], engine_id: str) -> Iterator[None]:
        """Inside, `find` finds the engine's id under each of the names."""
        for name in names:
            self._engine_ids.setdefault(name, set()).add(engine_id)
        try:
            yield
        finally:
            for name in names:
                self._engine_ids[name].discard(engine_id)
                if not self._engine_ids[name]:
                    del self._engine_ids[name]
                    if end := self._ends.pop(name, None):
                        end.set()

    def find(self, name: str) -> frozenset[str]:
        """The engine's ids of a request's choices; empty when there is none of that name."""
        return frozenset(self._engine_ids.get(name, ()))

    async def wait_ended(self, name: str) -> None:
        """Until no request of that name is held."""
        if name in self._engine_ids:
            await self._ends.setdefault(name, asyncio.Event()).wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything behind the door."""

    config: ServerConfig
    model_name: str
    """In the API: what answers say."""
    checkpoint_name: str
    engine: Engine
    tokenizer: Tokenizer
    dialect: Dialect
    metrics: Metrics
    store: ResponseStore
    advised: Mapping[str, float] = field(default_factory=dict)
    """What holds of `Checkpoint.sampling` where a request does not say."""
    running: Running = field(default_factory=Running)
    recent_prompts: RecentPrompts = field(default_factory=RecentPrompts)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    started_unix_s: int = field(default_factory=unix_s)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every name that requests may ask for."""
        return (self.model_name, *self.config.served_model_names[1:])

    def check_model(self, asked: str | None) -> None:
        """Raises ModelNotFound when a request names a model that is not served here."""
        if asked is not None and asked not in self.model_names:
            raise ModelNotFound(asked=asked, served=self.model_name)

    def check_num_choices(self, n: int | None, *, num_prompts: int = 1) -> None:
        """Raises InvalidRequest when one request asks for more than the server holds at all."""
        num_choices = num_prompts * (n or 1)
        if num_choices > self.config.max_waiting:
            asked = (
                "'n'" if num_prompts == 1 else f"the number of prompts ({num_prompts}) times 'n'"
            )
            raise InvalidRequest(
                f"{asked} is {num_choices}, this server holds {self.config.max_waiting} unfinished "
                f"requests; send fewer at once, or serve with a larger --max-waiting",
                param="n",
            )


def request_id(request: Request) -> str:
    """What the answer's x-request-id says."""
    return cast(str, request.scope["tokenlight.request_id"])


def services(request: Request) -> Services:
    """The services of the application that got this request."""
    return cast(Services, request.app.state.services)


def sent_key(headers: Headers) -> str | None:
    """The API key that a request carries, right or wrong."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        return credentials.strip()
    return headers.get("x-api-key")


def owner(request: Request) -> bytes:
    """Whose what this request leaves behind is: its key's, by which nobody can tell the key."""
    return owner_of(sent_key(request.headers))
