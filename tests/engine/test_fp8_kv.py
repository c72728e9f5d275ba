# SPDX-License-Identifier: Apache-2.0
"""Keys and values in float8 through the whole engine: what a GPU keeps, on the CPU.

Here the references read and write it; the Triton kernels that do so on a GPU are compared with them
op by op, and run a model's steps in `test_triton_steps.py`.
"""

import dataclasses
import math
from pathlib import Path
from statistics import mean, pstdev

import pytest
import torch
from msgspec.structs import replace

from tests.engine.rig import GREEDY, Rig, generate
from tests.engine.test_invariance import REQUESTS, tokens
from tests.server.fake_engine import ByteTokenizer
from tokenlight import kernels
from tokenlight.checkpoint import open_checkpoint
from tokenlight.models import load_model
from tokenlight.runner import ModelRunner
from tokenlight.runner.memory import compile_for, make_pool
from tokenlight.runner.resolve import graph_rows, model_shape
from tokenlight.text.grammar.matching import Grammars

F8 = torch.float8_e4m3fn
FEW = [replace(r, max_new_tokens=min(r.max_new_tokens, 12)) for r in REQUESTS[:10]]


@pytest.fixture(scope="module")
def fp8(tiny_path: Path, rig: Rig) -> Rig:
    """Staged and captured as on a GPU; no memory that it has not written is a number."""
    checkpoint = open_checkpoint(tiny_path)
    config = dataclasses.replace(
        rig.runner.config,
        kv_dtype=F8,
        block_bytes=rig.runner.config.block_bytes // 4,
        overlap=1,
        graph_rows=graph_rows(8),
        max_num_requests=8,
        num_blocks=400,
    )
    pool = make_pool(model_shape(checkpoint).layers, config, config.num_blocks)
    assert pool.num_bytes == (config.num_blocks + 1) * config.block_bytes
    for layer in range(2):
        for cache in pool.layer(layer):
            cache.fill_(math.nan)
    model = compile_for(load_model(checkpoint), pool, config)
    return Rig(ModelRunner(model, pool, config, Grammars(ByteTokenizer)))


@pytest.fixture(scope="module")
def alone(fp8: Rig) -> dict[str, object]:
    return {r.request_id: fp8.play({0: [r]})[0][r.request_id] for r in FEW}


def test_batched_and_joined_is_alone(fp8, alone):
    answers, stats = fp8.play({2 * index: [r] for index, r in enumerate(FEW)})
    assert tokens(answers) == tokens(alone)
    assert stats.num_free_blocks == stats.num_blocks
    assert len({tuple(a.token_ids[:3]) for a in alone.values()}) > len(FEW) // 2


def test_a_prefix_from_the_cache_is_a_prefix_computed(fp8, alone):
    again = [replace(r, request_id=f"again-{r.request_id}") for r in FEW]
    answers, _ = fp8.play({0: FEW, 40: again})
    assert sum(answers[r.request_id].num_cached_tokens for r in again) > 100
    for first, second in zip(FEW, again, strict=True):
        for asked in (first, second):
            assert answers[asked.request_id].token_ids == alone[first.request_id].token_ids


def test_log_probabilities_are_near_those_of_float32(fp8, rig):
    """Not the same: then nothing would have been rounded."""
    prompt = [(37 * i + 11) % 300 for i in range(90)]
    asked = generate("a", prompt, sampling=replace(GREEDY, num_prompt_logprobs=1), max_new_tokens=1)
    told = [r.play({0: [asked]})[0]["a"].prompt_logprobs for r in (fp8, rig)]
    kept, truth = ([one.logprob for one in each] for each in told)
    errors = [abs(a - b) for a, b in zip(kept, truth, strict=True)]
    assert len(errors) == 89
    assert 0.001 < mean(errors) < 0.15 * pstdev(truth)


def test_what_is_larger_than_any_float8_is_the_largest(fp8):
    """A key of 1e6 is one of 448, and no NaN that would end its request."""
    cache = torch.full((1, 1, 4, 8), math.nan).to(F8)
    ints = [torch.tensor(x, dtype=torch.int32) for x in ([0], [0, 1], [[0]], [0])]
    kernels.write_kv_(
        torch.full((1, 1, 8), 1e6), torch.full((1, 1, 8), -1e6), cache, cache.clone(), *ints
    )
    assert cache[0, 0, 0].float().tolist() == [448.0] * 8
