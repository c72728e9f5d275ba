# SPDX-License-Identifier: Apache-2.0
"""Grammars on rows: the constrained row follows its rules, its neighbours notice nothing."""

import math

import pytest
import torch

from tests.server.fake_engine import EOS, VOCAB_SIZE, ByteTokenizer
from tokenlight.runner.constraint import Constraint
from tokenlight.text.grammar.matching import Grammars

RULES = 'start: "yes" | "no" | /[0-9]{3}/\n'
NUM_PROMPT_TOKENS = 5


@pytest.fixture(scope="module")
def grammars():
    return Grammars(ByteTokenizer)


def constraint(grammars, *, after: str = "") -> Constraint:
    return Constraint(grammars.compile(RULES), after=after, num_prompt_tokens=NUM_PROMPT_TOKENS)


def speak(row: Constraint, seed: int, *, most: int = 20, vocab_size: int = VOCAB_SIZE) -> list[int]:
    """What greedy sampling of random logits says."""
    random = torch.Generator().manual_seed(seed)
    said: list[int] = []
    while EOS not in said and len(said) < most:
        logits_V = torch.randn(vocab_size, generator=random)
        row.shape_(logits_V, NUM_PROMPT_TOKENS + len(said))
        said.append(int(logits_V.argmax()))
        row.note(said[-1])
    return said


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_logits_are_the_answer_follows_its_rules(grammars, seed):
    said = speak(constraint(grammars), seed)
    text = bytes(said[:-1]).decode()
    assert said[-1] == EOS
    assert text in ("yes", "no") or (len(text) == 3 and text.isdecimal())


def test_a_model_with_more_tokens_than_its_tokenizer_never_says_them(grammars):
    for seed in range(10):
        assert max(speak(constraint(grammars), seed, vocab_size=VOCAB_SIZE + 500)) <= EOS


@pytest.mark.parametrize("rules", [RULES, "start: /[^y]+/\n"])
def test_a_model_with_fewer_tokens_than_its_tokenizer_says_its_own(rules):
    """What rules allow is told by what they allow, or by what they forbid."""

    class Larger(ByteTokenizer):
        vocab_size = VOCAB_SIZE + 3

    row = Constraint(
        Grammars(Larger, vocab_size=VOCAB_SIZE).compile(rules),
        after="",
        num_prompt_tokens=NUM_PROMPT_TOKENS,
    )
    logits_V = torch.zeros(VOCAB_SIZE)
    row.shape_(logits_V, NUM_PROMPT_TOKENS)
    assert logits_V[ord("n")] == 0
    assert (logits_V[ord("y")] == 0) == (rules == RULES)


def test_rules_without_a_token_that_ends_them_are_refused():
    class Endless(ByteTokenizer):
        eos_token_ids = ()

    with pytest.raises(ValueError, match="no token that ends an answer"):
        Grammars(Endless).compile(RULES).result(20)


def test_tokens_that_were_never_committed_are_sampled_anew(grammars):
    row = constraint(grammars)
    logits_V = torch.zeros(VOCAB_SIZE)
    row.shape_(logits_V, NUM_PROMPT_TOKENS)
    row.note(ord("y"))
    logits_V = torch.zeros(VOCAB_SIZE)
    row.shape_(logits_V, NUM_PROMPT_TOKENS)  # the same position again: its step failed
    assert logits_V[ord("n")] == 0
    row.note(ord("n"))
    logits_V = torch.zeros(VOCAB_SIZE)
    row.shape_(logits_V, NUM_PROMPT_TOKENS + 1)
    assert (logits_V == 0).nonzero().flatten().tolist() == [ord("o")]


def test_before_the_mark_all_but_the_end_may_be_said(grammars):
    row = constraint(grammars, after="!")
    logits_V = torch.zeros(VOCAB_SIZE)
    row.shape_(logits_V, NUM_PROMPT_TOKENS)
    assert logits_V[EOS] == -math.inf
    assert (logits_V[:EOS] == 0).all()
