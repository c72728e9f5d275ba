# SPDX-License-Identifier: Apache-2.0
"""What is told of a prompt is transformers' log-softmax, however the prompt was cut, whoever else
ran, whatever was cached; and it is told once.
"""

import random
from collections.abc import Callable
from dataclasses import replace as with_fields

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tests.engine.rig import Answer, Rig, generate
from tests.models.hugging_face import logits_of, make_twin
from tests.models.tiny import llama_config, random_llama, write_gguf
from tokenlight import wire
from tokenlight.base.errors import InvalidRequest
from tokenlight.engine.request import make_request
from tokenlight.models import CompiledModel
from tokenlight.nn import Step
from tokenlight.runner import prompt_logprobs

TELLING = wire.SamplingParams(temperature=0.0, num_prompt_logprobs=3)
PROMPT = random.Random(1).choices(range(500), k=150)  # more than two slices of rows
ASKED = generate("asked", PROMPT, sampling=TELLING, max_new_tokens=4)
SILENT = generate("silent", PROMPT, max_new_tokens=4)


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """transformers' log-probabilities after each token, and a rig of the same model."""
    config = llama_config()
    state = random_llama(config, seed=11, tied=True)
    path = tmp_path_factory.mktemp("models") / "twin.gguf"
    write_gguf(path, "llama", config, state, format="f32", tokenizer=True)
    logits_TV = logits_of(make_twin("llama", config, state), PROMPT)
    return torch.log_softmax(logits_TV, 1), Rig.load(path, kv_dtype="float32")


def check(told: list[wire.PromptLogprobs], truth_TV: torch.Tensor) -> None:
    assert len(told) == len(PROMPT) - 1
    for one, truth_V, token_id in zip(told, truth_TV, PROMPT[1:], strict=False):
        assert abs(one.logprob - truth_V[token_id].item()) < 1e-4
        np.testing.assert_allclose(one.top_logprobs, truth_V.topk(3).values, atol=1e-4)
        np.testing.assert_allclose(one.top_logprobs, truth_V[one.top_token_ids], atol=1e-4)
        # Exact, but for neighbours that are too close to tell.
        num_above = int((truth_V > truth_V[token_id] + 1e-4).sum())
        num_not_below = int((truth_V > truth_V[token_id] - 1e-4).sum())
        assert num_above < one.rank <= num_not_below


@pytest.mark.parametrize("max_step_tokens", [16, 37, 149, 2048])
def test_values_are_those_of_transformers(twin, max_step_tokens):
    truth_TV, rig = twin
    answers, stats = rig.play({0: [ASKED]}, max_step_tokens=max_step_tokens, max_num_requests=4)
    assert stats.num_steps >= len(PROMPT) // max_step_tokens
    check(answers["asked"].prompt_logprobs, truth_TV)


def test_nothing_is_reused_and_the_answer_is_the_same(twin):
    truth_TV, rig = twin
    again = replace(ASKED, request_id="again", cache_salt="x")
    answers, _ = rig.play({0: [SILENT], 100: [ASKED], 200: [again], 300: [generate("b", PROMPT)]})
    check(answers["asked"].prompt_logprobs, truth_TV)
    assert answers["again"].prompt_logprobs == answers["asked"].prompt_logprobs
    assert answers["asked"].num_cached_tokens == answers["again"].num_cached_tokens == 0
    assert answers["asked"].token_ids == answers["silent"].token_ids
    assert answers["silent"].prompt_logprobs is None
    assert answers["b"].num_cached_tokens > 0


def test_a_prompt_of_one_token_has_nothing_to_tell(twin):
    _, rig = twin
    answers, _ = rig.play({0: [generate("a", [7], sampling=TELLING)]})
    assert answers["a"].prompt_logprobs == []


def crowd(count: int) -> list[wire.Generate]:
    rng = random.Random(4)
    return [
        generate(
            f"r{index}",
            [rng.randrange(500) for _ in range(rng.randrange(2, 60))],
            sampling=TELLING if index % 3 else wire.SamplingParams(temperature=0.0),
            max_new_tokens=150,
        )
        for index in range(count)
    ]


def test_preempted_requests_are_told_once_and_the_same(rig):
    requests = crowd(12)
    alone: dict[str, Answer] = {}
    for request in requests:
        alone |= rig.play({0: [request]})[0]
    answers, stats = rig.play(
        {0: requests}, num_blocks=150, max_step_tokens=24, max_num_requests=16
    )
    assert stats.num_preemptions > 0
    assert {n: with_fields(a, num_cached_tokens=0) for n, a in answers.items()} == alone
    assert not rig.runner._prompts._prompts


def test_an_aborted_request_leaves_nothing_behind(rig):
    answers, _ = rig.play(
        {0: [ASKED], 3: [wire.Abort(request_id="asked")]}, max_step_tokens=16, max_num_requests=4
    )
    assert (answers["asked"].finish_reason, answers["asked"].prompt_logprobs) == ("abort", None)
    assert not rig.runner._prompts._prompts


class OtherHead:
    """A model whose head is disturbed; everything before it is real."""

    def __init__(self, model: CompiledModel, logits: Callable[..., torch.Tensor]) -> None:
        self.hidden = model.hidden
        self.logits = logits

    def __call__(self, step: Step) -> torch.Tensor:
        return self.logits(self.hidden(step), step.sampled_rows)


def test_rows_go_through_the_head_a_slice_at_a_time(rig, monkeypatch):
    most, model = [], rig.runner._model

    def counted(x_TD: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        most.append(len(rows))
        return model.logits(x_TD, rows)

    monkeypatch.setattr(rig.runner, "_model", OtherHead(model, counted))
    monkeypatch.setattr(prompt_logprobs, "SLICE_ROWS", 10)
    rig.play({0: [ASKED]})
    assert max(most) == 10
    assert sum(most) >= len(PROMPT)


def test_a_prompt_row_that_is_not_finite_ends_its_request_alone(rig, monkeypatch):
    model = rig.runner._model

    def poisoned(x_TD: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        logits_SV = model.logits(x_TD, rows)
        if len(rows) > 5:  # rows of the prompt; the sampled ones are fewer
            logits_SV[5, 77] = float("inf")
        return logits_SV

    other = generate("other", [5, 6, 7], max_new_tokens=4)
    alone = rig.play({0: [other]})[0]["other"]
    monkeypatch.setattr(rig.runner, "_model", OtherHead(model, poisoned))
    answers, stats = rig.play({0: [ASKED, other]}, max_step_tokens=16, max_num_requests=4)
    assert answers["asked"].finish_reason == "error"
    assert "not finite" in answers["asked"].error
    assert answers["other"] == alone
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.parametrize("number", [-1, 21])
def test_a_number_out_of_range_is_refused(rig, number):
    with pytest.raises(InvalidRequest, match="num_prompt_logprobs must be from 0 to 20"):
        make_request(
            rig.runner.facts,
            PROMPT,
            wire.SamplingParams(num_prompt_logprobs=number),
            request_id="a",
            max_new_tokens=1,
            stop_token_ids=(),
            priority=0,
        )
