# SPDX-License-Identifier: Apache-2.0
"""A model's steps through interpreted Triton kernels: `test_triton_steps.py` runs this file."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, pstdev

import pytest
import torch
from msgspec.structs import replace

from tests.engine.rig import GREEDY, Answer, Rig, generate
from tests.kernels import triton_interpreter
from tests.models.rig import Rig as ModelRig
from tests.models.tiny import write_tiny_llama
from tests.runner.triton_on_cpu import triton_serves_the_cpu
from tests.server.fake_engine import ByteTokenizer
from tests.spmd.ranks import FakeWorld
from tokenlight import wire
from tokenlight.checkpoint import open_checkpoint
from tokenlight.models import load_model
from tokenlight.runner import ModelRunner
from tokenlight.runner.memory import compile_for, make_pool
from tokenlight.runner.resolve import graph_rows, model_shape
from tokenlight.spmd import Mesh, Program, Widths
from tokenlight.text.grammar.matching import Grammars

assert triton_interpreter.IS_ON
triton_interpreter.mend()
F32, F8 = torch.float32, torch.float8_e4m3fn
PROMPT = [(37 * i + 11) % 300 for i in range(21)]
SHARED = [*PROMPT[:18], 5, 6]
REQUESTS = {
    0: [generate("a", PROMPT, sampling=replace(GREEDY, num_logprobs=0), max_new_tokens=5)],
    2: [generate("b", SHARED, sampling=replace(GREEDY, num_logprobs=0), max_new_tokens=4)],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", seed=5)


@pytest.fixture(scope="module")
def make_rig(path: Path) -> Iterator[Callable[..., Rig]]:
    """Staged and captured, as on a GPU; of another dtype of keys and values, without Triton."""
    plain = Rig.load(path).runner.config
    checkpoint = open_checkpoint(path)

    def make(kv_dtype: torch.dtype) -> Rig:
        config = dataclasses.replace(
            plain, kv_dtype=kv_dtype, overlap=1, graph_rows=graph_rows(2), max_num_requests=2
        )
        config = dataclasses.replace(config, num_blocks=40)
        pool = make_pool(model_shape(checkpoint).layers, config, config.num_blocks)
        model = compile_for(load_model(checkpoint), pool, config)
        return Rig(ModelRunner(model, pool, config, Grammars(ByteTokenizer)))

    return make


def backends(program: Program) -> set[str]:
    return {instruction.implementation.backend for instruction in program.instructions}


def logprobs(answer: Answer) -> list[float]:
    return [one.logprob for one in answer.logprobs]


@pytest.mark.parametrize("kv_dtype", [F32, F8], ids=["float32", "float8"])
def test_steps_through_triton_are_steps_through_the_cpus_kernels(
    make_rig: Callable[..., Rig], kv_dtype: torch.dtype
) -> None:
    truth, _ = make_rig(kv_dtype).play(REQUESTS)
    with triton_serves_the_cpu():
        rig = make_rig(kv_dtype)
        model = rig.runner._model
        bound = backends(model.body) | backends(model.head)
        assert bound <= {"triton", "triton_prefill", "reference"}
        assert "triton" in bound
        answers, stats = rig.play(REQUESTS)
    assert stats.num_free_blocks == stats.num_blocks
    assert answers["b"].num_cached_tokens == truth["b"].num_cached_tokens == 16
    for name in ("a", "b"):
        assert answers[name].token_ids == truth[name].token_ids
        errors = [
            abs(x - y) for x, y in zip(logprobs(answers[name]), logprobs(truth[name]), strict=True)
        ]
        # A key that is rounded to float8 may go the other way; in float32 nothing is rounded.
        assert max(errors) < (1e-3 if kv_dtype is F32 else 0.3)
    if kv_dtype is F8:
        wide, _ = make_rig(F32).play(REQUESTS)
        assert logprobs(answers["a"]) != logprobs(wide["a"])


def test_prompts_are_told_the_same_log_probabilities(make_rig: Callable[..., Rig]) -> None:
    prompt = [(41 * i + 7) % 300 for i in range(40)]
    sampling = wire.SamplingParams(temperature=0.0, num_prompt_logprobs=0)
    asked = {0: [generate("a", prompt, sampling=sampling, max_new_tokens=1)]}
    truth = make_rig(F32).play(asked)[0]["a"].prompt_logprobs
    with triton_serves_the_cpu():
        told = make_rig(F8).play(asked)[0]["a"].prompt_logprobs
    errors = [abs(x.logprob - y.logprob) for x, y in zip(told, truth, strict=True)]
    assert 0.001 < mean(errors) < 0.15 * pstdev([one.logprob for one in truth])


def test_two_ranks_leave_their_sums_to_a_norm(path: Path) -> None:
    """As on GPUs: shares are gathered, and added by what normalises their sum."""
    checkpoint = open_checkpoint(path)
    (truth,) = ModelRig(checkpoint).step({0: PROMPT[:2]})
    mesh = Mesh.of(Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2))
    world = FakeWorld(2, max_gathered_bytes=1 << 20)
    with triton_serves_the_cpu():
        rigs = [ModelRig(checkpoint, mesh.at(rank), world.rank(rank)) for rank in range(2)]
        told = world.run(lambda rank: rigs[rank].step({0: PROMPT[:2]})[0])
    body = rigs[0].compiled.body
    bound = {each.implementation.run.__module__ for each in body.instructions}
    assert "tokenlight.kernels.ops.sum_add_rms_norm.triton" in bound
    for ours in told:
        torch.testing.assert_close(ours, truth, rtol=1e-3, atol=1e-3)
