# SPDX-License-Identifier: Apache-2.0
"""Steps in flight, padding and replayed steps change no token: what runs on a GPU, on the CPU."""

import asyncio
import dataclasses
import math
from contextlib import aclosing

import pytest
import torch
from msgspec.structs import replace

from tests.engine.rig import GREEDY, Rig, generate
from tests.engine.test_grammar import bound, free
from tests.engine.test_invariance import REQUESTS, SAMPLED, SHAPED, tokens
from tests.server.fake_engine import ByteTokenizer
from tokenlight import wire
from tokenlight.config import EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.runner import ModelRunner
from tokenlight.runner.resolve import ResolvedConfig, graph_rows
from tokenlight.text.grammar.matching import Grammars

WAYS = [(0, True), (1, True), (2, True), (1, False), (2, False)]


def staged(rig: Rig, *, overlap: int, is_captured: bool, **sizes: int) -> Rig:
    """The same model behind a staged runner; no memory that it has not written is a number."""
    config = dataclasses.replace(
        rig.runner.config,
        overlap=overlap,
        graph_rows=graph_rows(sizes.get("max_num_requests", 64)) if is_captured else (),
        **sizes,
    )
    pool = rig.runner._kv
    for layer in range(2):
        for cache in pool.layer(layer):
            cache.fill_(math.nan)
    return Rig(ModelRunner(rig.runner._model, pool, config, Grammars(ByteTokenizer)))


@pytest.fixture(scope="module")
def truth(rig: Rig) -> dict[str, object]:
    return tokens(rig.play({0: REQUESTS})[0])


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS)
def test_staged_is_in_place(rig, truth, overlap, is_captured):
    other = staged(rig, overlap=overlap, is_captured=is_captured)
    answers, stats = other.play({2 * index: [r] for index, r in enumerate(REQUESTS)})
    assert tokens(answers) == truth
    assert stats.num_free_blocks == stats.num_blocks
    again, _ = other.play({0: REQUESTS})
    assert tokens(again) == truth


@pytest.mark.parametrize("overlap", [1, 2])
def test_short_requests_are_captured_apart(rig, truth, monkeypatch, overlap):
    """With a block table that has no room for others; beside a longer one, nobody is short."""
    widths_of = property(lambda config: (80, config.max_model_tokens))
    monkeypatch.setattr(ResolvedConfig, "graph_tokens", widths_of)
    other = staged(rig, overlap=overlap, is_captured=True)
    block_tokens, steps = rig.runner.config.block_tokens, []
    captured_for = other.runner._staged._model.captured_for

    def watched(sizes):
        captured = captured_for(sizes)
        if captured is not None:
            width = captured.frames.own.step.block_table.shape[1]
            steps.append((sizes[0].longest_tokens, width * block_tokens))
        return captured

    monkeypatch.setattr(other.runner._staged._model, "captured_for", watched)
    answers, _ = other.play({2 * index: [r] for index, r in enumerate(REQUESTS)})
    assert tokens(answers) == truth
    widths = {width for _, width in steps}
    assert widths == {80, -(-rig.runner.config.max_model_tokens // block_tokens) * block_tokens}
    assert all((width == 80) == (longest <= 80) for longest, width in steps)


def test_captures_share_the_memory_of_logits(rig):
    """Else each would hold its own for ever: to 512 rows of a large vocabulary, 20 GB."""
    model = staged(rig, overlap=1, is_captured=True, max_num_requests=24).runner._staged._model
    captured = list(model._captured.values())
    assert len({len(one.forward.results[0]) for one in captured}) == len(graph_rows(24))
    assert len({one.forward.results[0].untyped_storage().data_ptr() for one in captured}) == 1


@pytest.mark.parametrize(("overlap", "is_captured"), [(1, True), (2, True)])
def test_preempted_and_padded_is_undisturbed(rig, overlap, is_captured):
    long = [replace(r, max_new_tokens=150) for r in REQUESTS[:11]]
    alone, _ = rig.play({0: long})
    other = staged(rig, overlap=overlap, is_captured=is_captured, max_num_requests=11)
    num_blocks = 150
    answers, stats = other.play({0: long}, num_blocks=num_blocks)
    assert stats.num_preemptions > 0
    assert tokens(answers) == tokens(alone)
    # Of the rest of the pool only the last block was written: what padding wrote.
    for layer in range(2):
        for cache in rig.runner._kv.layer(layer):
            assert cache[num_blocks:-1].isnan().all()
            assert not cache[-1].isnan().all()


@pytest.mark.parametrize("overlap", [1, 2])
def test_whoever_waits_for_blocks_of_the_last_step_in_flight_gets_them(rig, overlap):
    long = [replace(r, max_new_tokens=100) for r in REQUESTS[:8]]
    alone, _ = rig.play({0: long})
    other = staged(rig, overlap=overlap, is_captured=True, max_num_requests=8, num_blocks=60)
    answers, stats = other.play({0: long})
    assert stats.num_preemptions > 0
    assert tokens(answers) == tokens(alone)


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS)
def test_rows_that_are_shaped_by_what_was_said(rig, overlap, is_captured):
    """Beside rows that are not: their ids come to the host late, and no token too late."""
    asked = {
        0: [bound("a"), bound("b", seed=3), free("c", 40)],
        3: [generate("d", range(50, 90), sampling=replace(SHAPED, seed=5), max_new_tokens=40)],
        9: [generate("e", range(9), sampling=replace(SAMPLED, seed=6), max_new_tokens=30)],
    }
    in_place = Rig(
        ModelRunner(rig.runner._model, rig.runner._kv, rig.runner.config, Grammars(ByteTokenizer))
    )
    truth, _ = in_place.play(asked)
    answers, stats = staged(rig, overlap=overlap, is_captured=is_captured).play(asked)
    assert tokens(answers) == tokens(truth)
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS)
def test_logprobs_of_answers_and_prompts(rig, overlap, is_captured):
    asked = [
        generate(
            name,
            range(start, start + 40),
            sampling=replace(GREEDY, num_logprobs=top, num_prompt_logprobs=prompt_top),
        )
        for name, start, top, prompt_top in (("a", 0, 3, None), ("b", 60, 0, 2), ("c", 9, None, 1))
    ]
    truth = told(rig, asked)
    other = staged(rig, overlap=overlap, is_captured=is_captured)
    assert told(other, asked) == truth


def told(rig: Rig, asked: list[wire.Generate]) -> dict[str, object]:
    answers, _ = rig.play({0: asked})
    return {n: (a.token_ids, a.prompt_logprobs, a.logprobs) for n, a in answers.items()}


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS)
def test_a_row_that_is_not_finite_ends_its_request_alone(rig, monkeypatch, overlap, is_captured):
    """Not by its token, which may be any, but by the sum that travels beside it."""
    other = staged(rig, overlap=overlap, is_captured=is_captured)
    asked = [replace(r, max_new_tokens=20) for r in REQUESTS[:3]]
    alone, _ = other.play({0: asked})
    model, num_calls = other.runner._staged._model._model, 0

    class Breaking:
        def __call__(self, step: object) -> torch.Tensor:
            nonlocal num_calls
            num_calls += 1
            logits_SV = model(step)
            if num_calls == 5:
                logits_SV[1, 77] = math.inf
            return logits_SV

    monkeypatch.setattr(other.runner._staged._model, "_model", Breaking())
    answers, stats = other.play({0: asked})
    assert (answers["r1"].finish_reason, "not finite" in answers["r1"].error) == ("error", True)
    for name in ("r0", "r2"):
        assert answers[name].token_ids == alone[name].token_ids
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.parametrize("overlap", [1, 2])
def test_a_step_that_raises_leaves_the_tables_true(rig, monkeypatch, overlap):
    """What it did not bring to the device's tables is there for the steps that follow."""
    other = staged(rig, overlap=overlap, is_captured=True)
    asked = {0: [REQUESTS[0]], 12: [replace(r, max_new_tokens=30) for r in REQUESTS[1:5]]}
    alone, _ = other.play(asked)
    staging = other.runner._staged._model.stagings[0]
    write, num_calls = staging._write_patches, 0

    def failing(*args: object) -> int:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            raise RuntimeError("the table broke")
        return write(*args)

    monkeypatch.setattr(staging, "_write_patches", failing)
    answers, stats = other.play(asked)
    assert "the table broke" in answers["r0"].error
    for name in ("r1", "r2", "r3", "r4"):
        assert answers[name].token_ids == alone[name].token_ids
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.e2e
async def test_a_process_with_steps_in_flight_answers_as_one_without(tiny_path, rig):
    """The flag, from the command line's config to the loop; aborts and mixed lengths with it."""
    prompts = {f"r{n}": [(7 * n + i) % 300 for i in range(5 + 9 * n)] for n in range(6)}
    asked = [generate(name, p, max_new_tokens=9 + len(p) % 7) for name, p in prompts.items()]
    alone, _ = rig.play({0: asked})
    config = EngineConfig(
        model=ModelConfig(model=str(tiny_path)),
        scheduler=SchedulerConfig(overlap=2),
        device="cpu",
        num_threads=1,
    )
    llm = await AsyncLLM.start(config)
    try:

        async def answer(name: str) -> list[int]:
            got: list[int] = []
            most = 9 + len(prompts[name]) % 7
            deltas = llm.generate(prompts[name], GREEDY, request_id=name, max_new_tokens=most)
            async for delta in deltas:
                got += delta.token_ids
            return got

        cut = llm.generate([1, 2, 3], GREEDY, request_id="cut", max_new_tokens=500)
        async with aclosing(cut):
            await anext(cut)
            texts = await asyncio.gather(*map(answer, prompts))
        assert dict(zip(prompts, texts, strict=True)) == {
            name: alone[name].token_ids for name in prompts
        }
    finally:
        await llm.close()


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_the_flag_reaches_the_runner(tiny_path, overlap):
    config = EngineConfig(
        model=ModelConfig(model=str(tiny_path)),
        scheduler=SchedulerConfig(overlap=overlap),
        device="cpu",
        num_threads=1,
    )
    runner = ModelRunner.load(config)
    assert runner.config.overlap == overlap
    assert (runner._staged is not None) == (overlap > 0)
