# SPDX-License-Identifier: Apache-2.0
"""What passes the door fits the model; what does not is refused with the numbers and the field."""

import numpy as np
import pytest

from tokenlight import wire
from tokenlight.base.errors import ContextTooLong, InvalidRequest
from tokenlight.engine.request import make_request

FACTS = wire.ModelFacts(
    max_model_tokens=10,
    vocab_size=100,
    block_tokens=16,
    num_blocks=1,
    kv_bytes=1,
    weights_bytes=1,
    load_s=0.0,
)


DEFAULTS = wire.SamplingParams()


def _make(prompt=(1, 2, 3), sampling=DEFAULTS, **changes):
    arguments = {"request_id": "a", "max_new_tokens": 5, "stop_token_ids": (), "priority": 0}
    return make_request(FACTS, prompt, sampling, **arguments | changes)


def test_a_good_request_passes_unchanged():
    sampling = wire.SamplingParams(temperature=0, top_k=1, top_p=0.5, min_p=1, seed=2**63 - 1)
    request = _make(sampling=sampling, stop_token_ids=[2], priority=-3)
    assert list(wire.unpack_token_ids(request.prompt_token_ids)) == [1, 2, 3]
    assert (request.sampling, request.stop_token_ids, request.priority) == (sampling, (2,), -3)
    assert request.max_new_tokens == 5


@pytest.mark.parametrize("prompt", [[0, 99], (0, 99), np.array([0, 99]), np.array([0, 99], "i4")])
def test_any_sequence_of_ids_is_a_prompt(prompt):
    assert list(wire.unpack_token_ids(_make(prompt).prompt_token_ids)) == [0, 99]


def test_max_new_tokens_is_lowered_to_what_the_context_leaves():
    assert _make([1] * 9, max_new_tokens=500).max_new_tokens == 1
    assert _make([1] * 4, max_new_tokens=500).max_new_tokens == 6


def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers():
    with pytest.raises(ContextTooLong, match=r"has 10 tokens.*context is 10 tokens"):
        _make([1] * 10)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([], "empty"),
        ([1, 100], "token 100 is outside the vocabulary of 100"),
        ([-1, 5], "token -1 is outside"),
        ([1 << 40], "not a token id"),
        (["x"], "not a token id"),
        ([1.5], "not a token id"),
    ],
)
def test_a_wrong_prompt_is_refused(prompt, said):
    with pytest.raises(InvalidRequest, match=said):
        _make(prompt)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_k", 1 << 31),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.01),
        ("seed", -1),
        ("seed", 1 << 63),
        ("min_tokens", -1),
        ("min_tokens", 1 << 31),
        ("min_tokens", 1 << 70),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=f"{name} must be") as refused:
        _make(sampling=wire.SamplingParams(**{name: value}))
    assert refused.value.param == name


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": wire.SamplingParams(top_k=2.0)},
        {"sampling": wire.SamplingParams(seed=True)},
        {"max_new_tokens": 2.5},
        {"priority": "high"},
        {"request_id": 7},
        {"sampling": wire.SamplingParams(temperature="hot")},
        {"sampling": wire.SamplingParams(logit_bias={"a": 1})},
        {"sampling": "hot"},
        {"sampling": {"temprature": 0}},
        {"sampling": {}},
        {"stop_token_ids": None},
        {"prompt": None},
        {"max_new_tokens": "5"},
        {"stop_token_ids": ["x"]},
    ],
)
def test_a_wrong_type_is_refused_and_never_sent(changes):
    with pytest.raises(InvalidRequest, match="wrong type"):
        _make(**changes)


@pytest.mark.parametrize("name", ["request_id", "cache_salt"])
def test_half_of_a_surrogate_pair_is_refused_and_never_sent(name):
    with pytest.raises(InvalidRequest, match="UTF-8"):
        _make(**{name: "b\ud83d"})


def test_max_new_tokens_below_one_is_refused():
    with pytest.raises(InvalidRequest, match="at least 1, got 0"):
        _make(max_new_tokens=0)


def test_stop_tokens_that_the_model_cannot_sample_are_left_out():
    assert _make(stop_token_ids=(5, 100, -1, 1 << 40)).stop_token_ids == (5,)


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1, 1 << 70])
def test_a_priority_that_the_scheduler_cannot_hold_is_refused(priority):
    with pytest.raises(InvalidRequest, match="priority must be") as refused:
        _make(priority=priority)
    assert refused.value.param == "priority"
