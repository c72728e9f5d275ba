# SPDX-License-Identifier: Apache-2.0
"""What ranks are told of a step, how little it is, and that pipes and tables keep it."""

import io

import numpy as np
import pytest
import torch

from tokenlight.runner.ranks.channel import PipeChannel, read_pipe
from tokenlight.runner.ranks.follower import follow
from tokenlight.runner.ranks.message import Message, Verb, decode, encode

MAX_BYTES_64_REQUESTS = 16 * 1024


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def decodes(num_requests: int, num_patches: int = 0) -> Message:
    rng = np.random.default_rng(num_requests)

    def some(*shape: int) -> np.ndarray:
        return rng.integers(0, 2**31 - 1, shape, dtype=np.int32)

    return Message(
        verb=Verb.STEP,
        sampled_rows=some(num_requests),
        token_ids=some(num_requests),
        positions=some(num_requests),
        kv_lens=some(num_requests),
        slots=some(num_requests),
        query_starts=some(num_requests + 1),
        patches=some(num_patches, 3),
    )


def same(a: Message, b: Message) -> bool:
    return a.verb is b.verb and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in Message.__dataclass_fields__
        if name != "verb"
    )


@pytest.mark.parametrize(
    "message",
    [decodes(0), decodes(1, 3), decodes(64, 64), Message(verb=Verb.LOGITS, sampled_rows=ints(4))],
    ids=["empty", "one", "full", "logits"],
)
def test_a_message_is_the_same_on_the_other_side(message: Message):
    again = decode(encode(message))
    assert again.patches.shape == (message.patches.size // 3, 3)
    assert same(again, Message(**{**fields_of(message), "patches": again.patches}))


def fields_of(message: Message) -> dict:
    return {name: getattr(message, name) for name in Message.__dataclass_fields__}


def test_a_step_of_64_requests_is_small_whatever_their_contexts():
    assert encode(decodes(64, 64)).nbytes <= MAX_BYTES_64_REQUESTS / 4


def test_a_cut_message_is_refused():
    with pytest.raises(ValueError, match="says that it has"):
        decode(encode(decodes(3))[:-1])


def test_a_pipe_keeps_messages_apart_and_ends():
    pipe = io.BytesIO()
    sent = [encode(decodes(n)) for n in (1, 5, 0)]
    for words in sent:
        PipeChannel([pipe]).send(words)
    pipe.seek(0)
    received = list(read_pipe(pipe))
    assert [w.tolist() for w in received] == [w.tolist() for w in sent]


def test_half_a_message_at_the_end_is_none():
    pipe = io.BytesIO()
    PipeChannel([pipe]).send(encode(decodes(2)))
    assert list(read_pipe(io.BytesIO(pipe.getvalue()[:-4]))) == []


class Recorder:
    """A model that remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.tables: list[list[list[int]]] = []

    def hidden(self, step) -> torch.Tensor:
        self.calls.append(("hidden", step.token_ids_T.tolist()))
        self.tables.append(step.block_table.tolist())
        return torch.ones(1)

    def logits(self, x_TD, rows_S) -> torch.Tensor:
        assert x_TD.tolist() == [1.0]
        self.calls.append(("logits", rows_S.tolist()))
        return torch.ones(1)


def step(verb: Verb, token: int, *patches: tuple[int, int, int]) -> np.ndarray:
    return encode(
        Message(
            verb=verb,
            sampled_rows=ints(0),
            token_ids=ints(token),
            positions=ints(0),
            kv_lens=ints(1),
            slots=ints(0),
            query_starts=ints(0, 1),
            patches=np.array(patches, np.int32).reshape(-1, 3),
        )
    )


def test_a_rank_makes_the_calls_that_it_is_told_and_keeps_the_table():
    model = Recorder()
    messages = [
        step(Verb.STEP, 7, (0, 0, 5), (1, 2, 9)),
        step(Verb.HIDDEN, 8, (0, 0, 4), (0, 0, 6)),
        encode(Message(verb=Verb.LOGITS, sampled_rows=ints(3, 4))),
    ]
    follow(model, None, messages, num_slots=2, num_columns=3)  # type: ignore[arg-type]
    assert model.calls == [
        ("hidden", [7]), ("logits", [0]), ("hidden", [8]), ("logits", [3, 4]),
    ]  # fmt: skip
    assert model.tables == [[[5, 0, 0], [0, 0, 9]], [[6, 0, 0], [0, 0, 9]]]
