# SPDX-License-Identifier: Apache-2.0
"""Reasoning ends when its budget is spent, and is left alone before and after."""

import math

import pytest
import torch

from tokenlight.runner.sampler import Sampler
from tokenlight.runner.thinking import ThinkingLimit
from tokenlight.wire import SamplingParams, ThinkingBudget

OPENER, CLOSER, NEWLINE, WORD, EOS = 10, 11, 12, 1, 0
VOCABULARY, NUM_PROMPT_TOKENS = 16, 4


def limit(num_tokens: int, *, is_open: bool) -> ThinkingLimit:
    budget = ThinkingBudget(
        num_tokens=num_tokens,
        opener=None if is_open else OPENER,
        closer=CLOSER,
        ending=(NEWLINE, CLOSER),
    )
    return ThinkingLimit(budget, num_prompt_tokens=NUM_PROMPT_TOKENS)


def speak(row: ThinkingLimit, wanted: list[int]) -> list[int]:
    """What greedy sampling says of a model that wants to say this."""
    said: list[int] = []
    for token_id in wanted:
        logits_V = torch.zeros(VOCABULARY)
        logits_V[token_id] = 1
        row.shape_(logits_V, NUM_PROMPT_TOKENS + len(said))
        said.append(int(logits_V.argmax()))
        row.note(said[-1])
    return said


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ([WORD] * 6, [WORD, WORD, WORD, NEWLINE, CLOSER, WORD]),
        ([WORD, CLOSER, *[WORD] * 5], [WORD, CLOSER, *[WORD] * 5]),
        ([WORD, EOS, WORD, WORD, EOS], [WORD, EOS, WORD, NEWLINE, CLOSER]),
    ],
)
def test_reasoning_that_the_prompt_opened(wanted, said):
    assert speak(limit(3, is_open=True), wanted) == said


def test_reasoning_that_the_model_opens_counts_from_there():
    wanted = [NEWLINE, OPENER, *[WORD] * 5]
    said = speak(limit(2, is_open=False), wanted)
    assert said == [NEWLINE, OPENER, WORD, WORD, NEWLINE, CLOSER, WORD]


def test_a_model_that_does_not_reason_is_left_alone():
    assert speak(limit(0, is_open=False), [WORD] * 5) == [WORD] * 5


def test_a_budget_of_nothing_ends_at_once():
    assert speak(limit(0, is_open=True), [WORD] * 3) == [NEWLINE, CLOSER, WORD]


def test_tokens_that_were_never_committed_are_taken_back():
    row = limit(2, is_open=True)
    speak(row, [WORD] * 5)
    for num_said, due in ((4, None), (3, CLOSER), (2, NEWLINE), (1, None)):
        logits_V = torch.zeros(VOCABULARY)
        row.shape_(logits_V, NUM_PROMPT_TOKENS + num_said)
        alone = (logits_V > -math.inf).nonzero().flatten().tolist()
        assert alone == (list(range(VOCABULARY)) if due is None else [due])


def test_the_sampler_holds_requests_to_it(plan_of):
    sampler = Sampler(2)
    budget = ThinkingBudget(num_tokens=1, opener=None, closer=CLOSER, ending=(CLOSER,))
    sampler.add(5, SamplingParams(temperature=0.0, thinking=budget))
    sampler.add(6, SamplingParams(temperature=0.0))
    logits_SV = torch.zeros(2, VOCABULARY)
    logits_SV[:, WORD] = 1
    said = [
        sampler.sample(plan_of([(5, 0, p, True), (6, 1, p, True)]), logits_SV.clone()).tolist()
        for p in (-1, 0, 1)
    ]
    assert said == [[WORD, WORD], [CLOSER, WORD], [WORD, WORD]]
