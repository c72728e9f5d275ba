# SPDX-License-Identifier: Apache-2.0
"""A step is the plan's own memory, seen as tensors."""

import numpy as np
import torch

from tokenlight.kv import DevicePool
from tokenlight.nn import CacheSpec
from tokenlight.runner.batch import make_step, make_trial_step


def pool(num_blocks: int) -> DevicePool:
    layers = [CacheSpec.keys_values(1, 2)]
    return DevicePool(layers, num_blocks=num_blocks, block_tokens=4, dtype=torch.float32)


PAIRS = {
    "token_ids": "token_ids_T",
    "positions": "positions_T",
    "query_starts": "query_starts",
    "kv_lens": "kv_lens",
    "slots": "slots",
    "block_table": "block_table",
    "sampled_rows": "sampled_rows",
}


def test_a_step_shares_the_plans_memory(plan_of):
    plan = plan_of([(5, 2, 7, True), (6, 0, 3, False)])
    step = make_step(plan, kv=None)
    for theirs, ours in PAIRS.items():
        array, tensor = getattr(plan, theirs), getattr(step, ours)
        assert tensor.dtype == torch.int32
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert np.shares_memory(tensor.numpy(), array)


def test_the_trial_step_is_one_token_in_block_0():
    step = make_trial_step(pool(num_blocks=1))
    assert step.token_ids_T.tolist() == step.positions_T.tolist() == step.slots.tolist() == [0]
    assert (step.query_starts.tolist(), step.kv_lens.tolist()) == ([0, 1], [1])
    assert step.block_table.tolist() == [[0]]


def test_a_large_trial_step_has_as_many_tokens_of_each_request():
    step = make_trial_step(pool(num_blocks=3), num_tokens=11, num_requests=2)
    assert step.query_starts.tolist() == [0, 5, 11]
    assert step.positions_T.tolist() == [*range(5), *range(6)]
    assert (step.kv_lens.tolist(), step.sampled_rows.tolist()) == ([5, 6], [4, 10])
    assert step.block_table.tolist() == [[0, 1], [0, 1]]
