# SPDX-License-Identifier: Apache-2.0
"""One request's deltas between the socket and its reader."""

import asyncio

import msgspec

from tokenlight.base.clock import now_s
from tokenlight.base.errors import EngineError
from tokenlight.wire import Delta


class Stream:
    """What was said of a request and not read yet: a reader, however slow, gets it as one delta."""

    __slots__ = (
        "_fault",
        "_num_cached_tokens",
        "_num_sampled_tokens",
        "_unread",
        "_waiter",
        "heard_s",
        "is_finished",
    )

    def __init__(self) -> None:
        self._unread: list[Delta] = []
        self._num_cached_tokens = 0
        self._num_sampled_tokens = 0
        self._fault: EngineError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.heard_s = now_s()
        """When the engine last said something about this request."""
        self.is_finished = False
        """The engine has said its last word on this request, or will never say it."""

    def push(self, delta: Delta) -> None:
        self._unread.append(delta)
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
        while not self._unread:
            if self._fault is not None:
                raise self._fault
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        unread, self._unread = self._unread, []
        # Who ends a request early does not know its totals: they are what they were.
        for delta in unread:
            self._num_cached_tokens = max(self._num_cached_tokens, delta.num_cached_tokens)
            self._num_sampled_tokens = max(self._num_sampled_tokens, delta.num_sampled_tokens)
        return msgspec.structs.replace(
            unread[0] if len(unread) == 1 else _merged(unread),
            num_cached_tokens=self._num_cached_tokens,
            num_sampled_tokens=self._num_sampled_tokens,
        )

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _merged(deltas: list[Delta]) -> Delta:
    """The last delta with the tokens of all: every other field is a total or a last word."""
    return msgspec.structs.replace(
        deltas[-1],
        token_ids=[token_id for delta in deltas for token_id in delta.token_ids],
        logprobs=[told for delta in deltas for told in delta.logprobs or ()] or None,
        prompt_logprobs=deltas[0].prompt_logprobs,
    )
