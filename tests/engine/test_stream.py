# SPDX-License-Identifier: Apache-2.0
"""A reader sees every token once and in order, however slow it is; a fault comes after what was
delivered.
"""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.base.errors import EngineDead
from tokenlight.engine.stream import Stream
from tokenlight.wire import Delta, PromptLogprobs


def said(token_ids: list[int], *, num_cached_tokens: int = 0, **rest: object) -> Delta:
    return Delta(request_id="a", token_ids=token_ids, num_cached_tokens=num_cached_tokens, **rest)


async def test_a_slow_reader_gets_one_merged_delta():
    stream = Stream()
    stream.push(said([1], num_cached_tokens=5, num_sampled_tokens=1))
    stream.push(said([2, 3], num_cached_tokens=5, num_sampled_tokens=3))
    last = {"num_cached_tokens": 5, "num_sampled_tokens": 4, "finish_reason": "stop"}
    stream.push(said([], **last))
    assert await stream.next() == said([1, 2, 3], **last)
    assert stream.is_finished


async def test_what_the_first_delta_tells_of_the_prompt_outlives_a_merge():
    stream, told = Stream(), [PromptLogprobs(-1.0, [5], [-0.5], 2)]
    delta = said([1], prompt_logprobs=told)
    stream.push(delta)
    stream.push(msgspec.structs.replace(delta, token_ids=[2], prompt_logprobs=None))
    assert (await stream.next()).prompt_logprobs == told


async def test_a_waiting_reader_is_woken():
    stream = Stream()
    reader = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    stream.push(said([7]))
    assert (await reader).token_ids == [7]
    assert not stream.is_finished


async def test_a_fault_comes_after_what_was_delivered():
    stream = Stream()
    stream.push(said([7]))
    stream.fail(EngineDead("gone"))
    assert (await stream.next()).token_ids == [7]
    with pytest.raises(EngineDead, match="gone"):
        await stream.next()


async def test_a_cancelled_reader_loses_nothing():
    stream = Stream()
    reader = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    stream.push(said([7]))
    assert (await stream.next()).token_ids == [7]


@pytest.mark.parametrize("is_read", [False, True])
async def test_an_early_end_keeps_the_totals_that_were_told(is_read):
    """Who ends a request from outside of its steps says nothing of its counts."""
    stream = Stream()
    stream.push(said([7, 8], num_cached_tokens=16, num_sampled_tokens=2))
    tokens = (await stream.next()).token_ids if is_read else []
    stream.push(said([], finish_reason="abort"))
    last = await stream.next()
    assert tokens + last.token_ids == [7, 8]
    assert (last.num_cached_tokens, last.num_sampled_tokens) == (16, 2)
    assert last.finish_reason == "abort"


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.booleans()), max_size=20))
def test_every_token_once_and_in_order(script):
    """Each step pushes some tokens; then the reader reads or not."""

    async def play():
        stream, read = Stream(), []
        for tokens, reads in script:
            stream.push(said(tokens))
            if reads:
                read += (await stream.next()).token_ids
        stream.push(said([], finish_reason="length"))
        return read + (await stream.next()).token_ids

    assert asyncio.run(play()) == [token for tokens, _ in script for token in tokens]
