# SPDX-License-Identifier: Apache-2.0
"""What ranks are told of a step, how little it is, and that pipes and tables keep it."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from tokenlight.nn import Step
from tokenlight.runner.ranks.channel import PipeChannel, read_pipe
from tokenlight.runner.ranks.follower import follow
from tokenlight.runner.ranks.groups import share_out
from tokenlight.runner.ranks.leader import Groups, LeadingModel
from tokenlight.runner.ranks.message import Message, Verb, decode, encode, pack, unpack
from tokenlight.runner.ranks.steps import RankSteps, TableSize

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
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in Message.__dataclass_fields__
    )


@pytest.mark.parametrize(
    "message",
    [
        decodes(0),
        decodes(1, 3),
        decodes(64, 64),
        Message(verb=Verb.LOGITS, sampled_rows=ints(4)),
        replace(decodes(2), num_padding=5),
    ],
    ids=["empty", "one", "full", "logits", "padded"],
)
def test_a_message_is_the_same_on_the_other_side(message: Message):
    again = decode(encode(message))
    assert again.patches.shape == (message.patches.size // 3, 3)
    assert same(again, Message(**{**fields_of(message), "patches": again.patches}))


def fields_of(message: Message) -> dict:
    return {name: getattr(message, name) for name in Message.__dataclass_fields__}


def test_a_step_of_64_requests_is_small_whatever_their_contexts():
    assert encode(decodes(64, 64)).nbytes <= MAX_BYTES_64_REQUESTS / 4


def test_each_group_finds_what_it_is_told():
    parts = [encode(decodes(n)) for n in (3, 0, 7)]
    told = pack(parts)
    for group, part in enumerate(parts):
        assert unpack(told, group).tolist() == part.tolist()


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


def message_of(*groups: Message) -> np.ndarray:
    return pack([encode(group) for group in groups])


def table(num_slots: int, num_columns: int, num_blocks: int = 0) -> RankSteps:
    size = TableSize(num_slots=num_slots, num_columns=num_columns, num_blocks=num_blocks)
    return RankSteps(None, size)  # type: ignore[arg-type]


def step(verb: Verb, token: int, *patches: tuple[int, int, int]) -> np.ndarray:
    return message_of(
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
        message_of(Message(verb=Verb.LOGITS, sampled_rows=ints(3, 4))),
    ]
    follow(model, table(2, 3, num_blocks=20), messages)  # type: ignore[arg-type]
    assert model.calls == [
        ("hidden", [7]), ("logits", [0]), ("hidden", [8]), ("logits", [3, 4]),
    ]  # fmt: skip
    padding = [20, 20, 20]
    assert model.tables == [[[5, 0, 0], [0, 0, 9], padding], [[6, 0, 0], [0, 0, 9], padding]]


def step_of_groups() -> Step:
    """Two requests of group 0 (slots 1 and 0), none of group 1, one of group 2 (slot 5)."""
    return Step(
        token_ids_T=torch.tensor([10, 11, 12, 20, 21], dtype=torch.int32),
        positions_T=torch.tensor([0, 1, 7, 4, 5], dtype=torch.int32),
        query_starts=torch.tensor([0, 2, 3, 5], dtype=torch.int32),
        kv_lens=torch.tensor([2, 8, 6], dtype=torch.int32),
        slots=torch.tensor([1, 0, 5], dtype=torch.int32),
        block_table=torch.empty(0, 0, dtype=torch.int32),
        sampled_rows=torch.tensor([1, 2, 4], dtype=torch.int32),
        kv=None,  # type: ignore[arg-type]
    )


PATCHES = np.array([[5, 0, 3], [1, 0, 4], [1, 1, 5], [5, 0, 6]], np.int32)


def test_a_step_is_shared_out_and_padded():
    shares = share_out(Verb.STEP, step_of_groups(), PATCHES, num_groups=3, num_slots=2)
    first, nothing, last = shares.messages
    assert first.token_ids.tolist() == [10, 11, 12]
    assert first.slots.tolist() == [1, 0]
    assert first.sampled_rows.tolist() == [1, 2]
    assert first.patches.tolist() == [[1, 0, 4], [1, 1, 5]]
    assert (first.num_padding, nothing.num_padding, last.num_padding) == (0, 3, 1)
    assert nothing.query_starts.tolist() == [0]
    assert len(nothing.slots) == len(nothing.sampled_rows) == len(nothing.patches) == 0
    assert last.token_ids.tolist() == [20, 21]
    assert last.query_starts.tolist() == [0, 2]
    assert last.slots.tolist() == [1]
    assert last.sampled_rows.tolist() == [1]
    assert last.patches.tolist() == [[1, 0, 3], [1, 0, 6]]
    assert [rows.tolist() for rows in shares.rows(ints(0, 2, 3))] == [[0, 2], [], [0]]


def test_rows_of_padding_are_requests_of_one_token_in_the_block_of_nobody():
    shares = share_out(Verb.STEP, step_of_groups(), PATCHES, num_groups=3, num_slots=2)
    steps = [table(2, 4, num_blocks=9).make(message) for message in shares.messages]
    assert {step.num_tokens for step in steps} == {3}
    for step in steps:
        num_own = len(step.slots) - step.slots.tolist().count(2)
        assert step.query_starts.diff().tolist()[num_own:] == [1] * (len(step.slots) - num_own)
        assert step.kv_lens.tolist()[num_own:] == [1] * (len(step.slots) - num_own)
        assert step.query_starts[-1] == step.num_tokens
        assert step.block_table[2].tolist() == [9] * 4
    assert steps[1].slots.tolist() == [2, 2, 2]
    assert steps[2].block_table[1].tolist() == [6, 0, 0, 0]


def test_the_leading_rank_tells_all_and_runs_its_own():
    model, told = Recorder(), []
    leading = LeadingModel(
        model,  # type: ignore[arg-type]
        table(2, 4),
        Groups(first_ranks=[0], num_slots=2),
        told.append,
    )
    first = replace(
        step_of_groups(),
        slots=torch.tensor([1, 0, 1], dtype=torch.int32),
    )
    leading.note(np.array([[0, 1, 0, 7]], np.int32))
    leading(first)
    x_TD = leading.hidden(first)
    leading.logits(x_TD, torch.tensor([3, 4], dtype=torch.int32))
    other = Recorder()
    follow(other, table(2, 4), told)  # type: ignore[arg-type]
    assert other.calls == model.calls
    assert other.tables == model.tables
    assert model.calls[-1] == ("logits", [3, 4])
