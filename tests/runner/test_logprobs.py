# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities against float64, and which rows get them."""

import numpy as np
import torch

from tokenlight.runner.logprobs import pick_logprobs, read_logprobs
from tokenlight.runner.sampler import Sampler
from tokenlight.wire import SamplingParams

VOCABULARY = 5000


def test_they_are_the_log_softmax_of_the_untouched_logits():
    logits_SV = 4 * torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(1))
    wanted = {0: 5, 2: 0}
    read = read_logprobs(logits_SV, wanted)
    truth_SV = torch.log_softmax(logits_SV.double(), 1)
    logits_SV.zero_()
    told = pick_logprobs(read, wanted, np.array([17, 3, 4321], np.int32))
    assert set(told) == {0, 2}
    np.testing.assert_allclose(told[0].logprob, truth_SV[0, 17], atol=1e-5)
    np.testing.assert_allclose(told[2].logprob, truth_SV[2, 4321], atol=1e-5)
    best = torch.topk(truth_SV[0], 5)
    assert told[0].top_token_ids == best.indices.tolist()
    np.testing.assert_allclose(told[0].top_logprobs, best.values, atol=1e-5)
    assert told[2].top_token_ids == []


def test_a_rows_numbers_do_not_depend_on_what_shares_the_call():
    logits_SV = torch.randn(8, VOCABULARY, generator=torch.Generator().manual_seed(2))
    together = read_logprobs(logits_SV, dict.fromkeys(range(8), 1))
    for row in range(8):
        alone = read_logprobs(logits_SV[row : row + 1], {0: 1})[0]
        assert together[row].equal(alone)


def test_only_requests_that_ask_are_told(plan_of):
    sampler = Sampler(3)
    sampler.add(1, SamplingParams(num_logprobs=2))
    sampler.add(2, SamplingParams())
    sampler.add(3, SamplingParams(num_logprobs=0))
    plan = plan_of([(2, 0, 5, True), (3, 1, 5, True), (1, 2, 5, False)])
    assert sampler.num_logprobs(plan) == {1: 0}
    sampler.remove(3)
    sampler.add(3, SamplingParams())
    assert sampler.num_logprobs(plan) == {}
