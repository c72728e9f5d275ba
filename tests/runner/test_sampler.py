# SPDX-License-Identifier: Apache-2.0
"""A request's parameters follow it from slot to slot, and never stay behind."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tokenlight.runner.sampler import NO_DRAFT, Sampler, drafts_behind, num_accepted
from tokenlight.wire import SamplingParams

VOCABULARY = 300
GREEDY = SamplingParams(temperature=0.0)


def params_of(request_id: int) -> SamplingParams:
    """Differs in every field from every other request's."""
    return SamplingParams(
        temperature=0.5 + request_id / 10,
        top_k=50 + request_id,
        top_p=0.9 - request_id / 100,
        min_p=request_id / 1000,
        seed=request_id,
    )


@pytest.fixture(name="logits_SV")
def random_logits() -> torch.Tensor:
    return torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(3))


def sample_alone(plan_of, request_id: int, position: int, logits_V: torch.Tensor) -> int:
    sampler = Sampler(4)
    sampler.add(request_id, params_of(request_id))
    plan = plan_of([(request_id, 0, position, True)])
    return sampler.sample(plan, logits_V.reshape(1, -1)).item()


def test_each_row_gets_its_own_parameters_wherever_it_sits(plan_of, logits_SV):
    sampler = Sampler(4)
    for request_id in range(1, 5):
        sampler.add(request_id, params_of(request_id))
    for round_, slots in enumerate([(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)]):
        rows = [
            (request_id, slots[request_id - 1], 10 + round_, True) for request_id in (1, 2, 3, 4)
        ]
        token_ids = sampler.sample(plan_of(rows), logits_SV)
        assert token_ids.dtype == torch.int32
        assert token_ids.tolist() == [
            sample_alone(plan_of, request_id, 10 + round_, logits_SV[request_id - 1])
            for request_id in (1, 2, 3, 4)
        ]


def test_rows_that_are_not_sampled_are_left_out(plan_of, logits_SV):
    sampler = Sampler(4)
    sampler.add(7, params_of(7))
    sampler.add(8, params_of(8))
    plan = plan_of([(8, 0, 3, False), (7, 1, 30, True)])
    assert sampler.sample(plan, logits_SV[:1]).tolist() == [
        sample_alone(plan_of, 7, 30, logits_SV[0])
    ]


def test_a_slots_next_owner_inherits_nothing(plan_of, logits_SV):
    sampler = Sampler(1)
    sampler.add(1, params_of(1))
    sampler.sample(plan_of([(1, 0, 5, True)]), logits_SV[:1])
    sampler.remove(1)
    sampler.add(2, GREEDY)
    best = int(logits_SV[0].argmax())
    assert sampler.sample(plan_of([(2, 0, 5, True)]), logits_SV[:1]).tolist() == [best]


def test_an_id_that_comes_again_has_its_new_parameters(plan_of, logits_SV):
    sampler = Sampler(1)
    for params in (params_of(1), GREEDY):
        sampler.add(1, params)
        token_ids = sampler.sample(plan_of([(1, 0, 5, True)]), logits_SV[:1])
        sampler.remove(1)
    assert token_ids.tolist() == [int(logits_SV[0].argmax())]


def test_positions_and_seeds_change_the_draw_and_repeat_it(plan_of):
    """Flat logits, so that every draw is free."""
    flat_1V = torch.zeros(1, VOCABULARY)

    def draw(seed: int, position: int) -> int:
        sampler = Sampler(1)
        sampler.add(1, SamplingParams(seed=seed))
        return sampler.sample(plan_of([(1, 0, position, True)]), flat_1V).item()

    draws = [draw(seed, position) for seed in range(8) for position in range(8)]
    assert draws == [draw(seed, position) for seed in range(8) for position in range(8)]
    assert len(set(draws)) > 45
    counts = np.histogram([draw(5, p) for p in range(300)], bins=3, range=(0, VOCABULARY))[0]
    assert counts.min() > 70


def test_a_draft_that_is_not_sampled_voids_what_stands_behind_it():
    plan = SimpleNamespace(
        token_ids=np.array([50, 60, 7, 8, 70, 9], np.int32),
        sampled_rows=np.arange(6, dtype=np.int32),
        sampled_requests=np.array([0, 1, 1, 1, 2, 2], np.int32),
        num_tokens=6,
        num_requests=3,
    )
    assert drafts_behind(plan).tolist() == [NO_DRAFT, 7, 8, NO_DRAFT, 9, NO_DRAFT]
    for token_ids, accepted in (
        ([1, 7, 8, 3, 9, 4], [1, 3, 2]),
        ([1, 7, 5, 3, 9, 4], [1, 2, 2]),
        ([1, 5, 8, 3, 2, 4], [1, 1, 1]),
    ):
        assert num_accepted(plan, np.array(token_ids, np.int32)).tolist() == accepted
