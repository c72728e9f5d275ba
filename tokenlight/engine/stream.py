# SPDX-License-Identifier: Apache-2.0
"""One request's deltas between the socket and its reader."""

import asyncio

import msgspec

from tokenlight.base.clock import now_s
from tokenlight.base.errors import EngineError
from tokenlight.wire import Delta


class Stream:
    """Holds at most one delta: what comes while the reader is busy is merged into it."""

    __slots__ = ("_delta", "_fault", "_waiter", "heard_s", "is_finished")

    def __init__(self) -> None:
        self._delta: Delta | None = None
        self._fault: EngineError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.heard_s = now_s()
        """When the engine last said something about this request."""
        self.is_finished = False
        """The engine has said its last word on this request, or will never say it."""

    def push(self, delta: Delta) -> None:
        self._delta = delta if self._delta is None else _merged(self._delta, delta)
        self.heard_s = now_s()
        self.is_finished = self.is_finished or delta.finish_reason is not None
        self._wake()

    def fail(self, fault: EngineError) -> None:
        """What was delivered can still be read; then the reader gets `fault`."""
        self._fault = fault
        self.is_finished = True
        self._wake()

    async def next(self) -> Delta:
        """The next delta; one reader at a time."""
        while self._delta is None:
            if self._fault is not None:
                raise self._fault
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        delta, self._delta = self._delta, None
        return delta

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _merged(earlier: Delta, later: Delta) -> Delta:
    """The later delta with the tokens of both: every other field is a total or a last word."""
    logprobs = [*(earlier.logprobs or ()), *(later.logprobs or ())]
    return msgspec.structs.replace(
        later,
        token_ids=earlier.token_ids + later.token_ids,
        logprobs=logprobs or None,
        prompt_logprobs=earlier.prompt_logprobs,
    )
