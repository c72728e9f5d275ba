# SPDX-License-Identifier: Apache-2.0
"""Biases and penalties against transformers' processors and against the formulas written out."""

import math

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from tokenlight.runner.sampler import Sampler
from tokenlight.runner.shaping import Shaper, is_shaping
from tokenlight.wire import SamplingParams

VOCABULARY = 60
PROMPT = np.array([3, 4, 3, 50], np.int32)
STOPS = (7, 9)


@pytest.fixture(name="logits_V")
def random_logits() -> torch.Tensor:
    return 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(5))


def shaped(params: SamplingParams, logits_V: torch.Tensor, sampled: list[int]) -> torch.Tensor:
    """The logits for the token after `sampled`."""
    shaper = Shaper(params, PROMPT, STOPS)
    for place, token_id in enumerate(sampled):
        shaper.shape_(logits_V.clone(), len(PROMPT) + place)
        shaper.note(token_id)
    out_V = logits_V.clone()
    shaper.shape_(out_V, len(PROMPT) + len(sampled))
    return out_V


@pytest.mark.parametrize("sampled", [[], [8], [8, 8, 3, 12]])
@pytest.mark.parametrize("penalty", [0.7, 1.3])
def test_the_repetition_penalty_is_transformers(logits_V, penalty, sampled):
    said = torch.tensor([[*PROMPT.tolist(), *sampled]])
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty)])
    wanted = processors(said, logits_V.clone().reshape(1, -1))[0]
    params = SamplingParams(repetition_penalty=penalty)
    torch.testing.assert_close(shaped(params, logits_V, sampled), wanted)


@pytest.mark.parametrize(("frequency", "presence"), [(0.5, 0.0), (0.0, 0.7), (-0.4, 1.1)])
def test_frequency_and_presence_count_the_answer_and_not_the_prompt(logits_V, frequency, presence):
    sampled = [8, 8, 3, 12, 8]
    wanted = [
        logit - frequency * sampled.count(i) - presence * (i in sampled)
        for i, logit in enumerate(logits_V.tolist())
    ]
    params = SamplingParams(frequency_penalty=frequency, presence_penalty=presence)
    torch.testing.assert_close(shaped(params, logits_V, sampled), torch.tensor(wanted))


def test_a_bias_is_added_before_the_penalties(logits_V):
    params = SamplingParams(logit_bias={4: 2.5, 11: -100.0}, repetition_penalty=2.0)
    out_V = shaped(params, logits_V, [])
    biased = float(logits_V[4]) + 2.5
    assert float(out_V[4]) == pytest.approx(biased / 2 if biased > 0 else biased * 2)
    assert float(out_V[11]) == pytest.approx(float(logits_V[11]) - 100)


def test_stop_tokens_wait_for_min_tokens(logits_V):
    params = SamplingParams(min_tokens=2)
    for sampled, is_banned in (([], True), ([8], True), ([8, 8], False)):
        out_V = shaped(params, logits_V, sampled)
        assert [math.isinf(float(out_V[i])) for i in STOPS] == [is_banned] * 2
        others = [i for i in range(VOCABULARY) if i not in STOPS]
        assert out_V[others].equal(logits_V[others])


def test_what_was_never_committed_is_forgotten(logits_V):
    params = SamplingParams(frequency_penalty=1.0, presence_penalty=0.5)
    shaper = Shaper(params, PROMPT, STOPS)
    for place, token_id in enumerate([8, 12, 30]):
        shaper.shape_(logits_V.clone(), len(PROMPT) + place)
        shaper.note(token_id)
    again_V = logits_V.clone()
    shaper.shape_(again_V, len(PROMPT) + 1)
    torch.testing.assert_close(again_V, shaped(params, logits_V, [8]))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(repetition_penalty=1.1),
        SamplingParams(frequency_penalty=-0.1),
        SamplingParams(presence_penalty=0.1),
        SamplingParams(min_tokens=1),
        SamplingParams(logit_bias={1: 1.0}),
    ],
)
def test_each_parameter_alone_makes_a_request_one_that_shapes(params):
    assert is_shaping(params)
    assert not is_shaping(SamplingParams(temperature=0.3, top_k=5, num_logprobs=3))


def test_only_the_row_that_asks_is_shaped_wherever_it_sits(plan_of):
    """Two requests share a step and change places; greedy, so that the choice shows the logits."""
    logits_SV = torch.zeros(2, VOCABULARY)
    logits_SV[:, 20], logits_SV[:, 21] = 5.0, 4.0
    sampler = Sampler(2)
    sampler.add(1, SamplingParams(temperature=0.0))
    sampler.add(2, SamplingParams(temperature=0.0, presence_penalty=2.0), PROMPT, STOPS)
    first, second = len(PROMPT) - 1, len(PROMPT)
    plan = plan_of([(1, 0, first, True), (2, 1, first, True)])
    assert sampler.sample(plan, logits_SV.clone()).tolist() == [20, 20]
    plan = plan_of([(2, 0, second, True), (1, 1, second, True)])
    assert sampler.sample(plan, logits_SV.clone()).tolist() == [21, 20]
    sampler.remove(2)
    sampler.add(3, SamplingParams(temperature=0.0))
    plan = plan_of([(3, 0, second, True)])
    assert sampler.sample(plan, logits_SV[:1].clone()).tolist() == [20]
