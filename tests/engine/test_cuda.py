# SPDX-License-Identifier: Apache-2.0
"""The engine on a GPU beside transformers, and beside itself: every way to run a step is one."""

import dataclasses
import math
import random
from pathlib import Path
from statistics import mean, pstdev

import pytest
import torch
from msgspec.structs import replace
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.engine.rig import GREEDY, Rig, generate
from tests.engine.test_grammar import bound, free
from tests.server.fake_engine import ByteTokenizer
from tokenlight import wire
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.runner import ModelRunner
from tokenlight.runner.resolve import graph_rows
from tokenlight.text.grammar.matching import Grammars

pytestmark = pytest.mark.cuda

VOCAB_SIZE = 2048
SAMPLED = wire.SamplingParams(temperature=0.9, top_k=50, top_p=0.95, min_p=0.01)
SHAPED = replace(SAMPLED, repetition_penalty=1.3, frequency_penalty=0.2, logit_bias={5: 3.0})
WAYS = [(0, False), (0, True), (1, False), (1, True), (2, True)]
NUM_REQUESTS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shape of an 8B model's heads, and little of everything else."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.05,
    )
    path = tmp_path_factory.mktemp("qwen3")
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    return path


def load(folder: Path, row_invariance: str, kv_dtype: str = "auto") -> Rig:
    config = EngineConfig(
        model=ModelConfig(model=str(folder)),
        cache=CacheConfig(kv_cache_bytes=256 << 20, kv_dtype=kv_dtype),
        scheduler=SchedulerConfig(max_num_requests=NUM_REQUESTS, max_step_tokens=256),
        device="cuda",
        row_invariance=row_invariance,
    )
    return Rig(ModelRunner.load(config))


@pytest.fixture(scope="module")
def fast(folder: Path) -> Rig:
    """With the kernels that this GPU has the fastest."""
    return load(folder, "off")


@pytest.fixture(scope="module")
def short(folder: Path) -> Rig:
    """With keys and values in float8."""
    return load(folder, "off", kv_dtype="fp8")


@pytest.fixture(scope="module")
def exact(folder: Path, fast: Rig, short: Rig) -> Rig:
    """With row-invariant kernels. Loaded last: no others are bound afterwards."""
    return load(folder, "on")


def another(rig: Rig, *, overlap: int, is_captured: bool) -> Rig:
    """The same weights; no memory that it has not written is a number."""
    config = dataclasses.replace(
        rig.runner.config,
        overlap=overlap,
        graph_rows=graph_rows(NUM_REQUESTS) if is_captured else (),
    )
    pool = rig.runner._kv
    for layer in range(3):
        for cache in pool.layer(layer):
            cache.fill_(math.nan)
    return Rig(ModelRunner(rig.runner._model, pool, config, Grammars(ByteTokenizer)))


REQUESTS_TOKENS = random.Random(9).choices(range(VOCAB_SIZE), k=60)


def prompts(num: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 90))] for _ in range(num)]


REQUESTS = [
    generate(
        f"r{index}",
        prompt,
        sampling=replace((GREEDY, SAMPLED, GREEDY, SHAPED)[index % 4], seed=index),
        max_new_tokens=10 + 3 * index,
    )
    for index, prompt in enumerate(prompts(NUM_REQUESTS, seed=1))
]


@pytest.mark.parametrize("kind", ["fast", "exact"])
def test_logprobs_of_a_prompt_are_those_of_transformers(kind, request, folder):
    """As close to float32's as transformers in bfloat16 is; the largest is the same where it is so
    by more than both errors.
    """
    rig = request.getfixturevalue(kind)
    prompt = random.Random(3).choices(range(VOCAB_SIZE), k=700)
    ids = torch.tensor([prompt], device="cuda")
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).cuda().eval()
    with torch.inference_mode():
        theirs = torch.log_softmax(model(ids).logits[0].float(), 1)
        truth = torch.log_softmax(model.float()(ids).logits[0], 1)
    del model
    bound_of_error = 1.5 * float((theirs - truth).abs().max())
    asked = generate("a", prompt, sampling=replace(GREEDY, num_prompt_logprobs=2), max_new_tokens=1)
    for overlap, is_captured in ((0, False), (1, True)):
        answers, _ = another(rig, overlap=overlap, is_captured=is_captured).play({0: [asked]})
        told = answers["a"].prompt_logprobs
        assert len(told) == len(prompt) - 1
        num_clear = 0
        for position, one in enumerate(told):
            want = truth[position]
            assert abs(one.logprob - float(want[prompt[position + 1]])) < bound_of_error
            best = want.topk(2)
            if float(best.values[0] - best.values[1]) > 2 * bound_of_error:
                num_clear += 1
                assert one.top_token_ids[0] == int(best.indices[0])
        assert num_clear > 10


@pytest.mark.parametrize("kind", ["fast", "exact"])
def test_decoding_token_by_token_has_the_logprobs_of_a_prompt(kind, request):
    """What is sampled is told the log-probability that it has when all of it is a prompt."""
    rig = request.getfixturevalue(kind)
    asked = generate("a", REQUESTS_TOKENS, sampling=replace(GREEDY, num_logprobs=1))
    asked = replace(asked, max_new_tokens=40)
    answers, _ = another(rig, overlap=1, is_captured=True).play({0: [asked]})
    said = answers["a"]
    whole = [*REQUESTS_TOKENS, *said.token_ids]
    again = generate("b", whole, sampling=replace(GREEDY, num_prompt_logprobs=1), max_new_tokens=1)
    told, _ = another(rig, overlap=1, is_captured=True).play({0: [again]})
    as_prompt = told["b"].prompt_logprobs[-40:]
    for one, other in zip(said.logprobs, as_prompt, strict=True):
        if kind == "exact":
            assert one.logprob == other.logprob
        assert abs(one.logprob - other.logprob) < 0.1


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS)
def test_every_way_gives_the_tokens_that_each_request_gets_alone(exact, overlap, is_captured):
    plain = another(exact, overlap=0, is_captured=False)
    alone = {r.request_id: plain.play({0: [r]})[0][r.request_id].token_ids for r in REQUESTS}
    assert len({tuple(ids[:4]) for ids in alone.values()}) > NUM_REQUESTS // 2
    other = another(exact, overlap=overlap, is_captured=is_captured)
    answers, stats = other.play({2 * i: [r] for i, r in enumerate(REQUESTS)})
    assert {name: a.token_ids for name, a in answers.items()} == alone
    assert stats.num_free_blocks == stats.num_blocks
    used = stats.num_blocks - 1
    for layer in range(3):
        for cache in exact.runner._kv.layer(layer):
            assert bool(cache[used // 2 : -1].isnan().all())


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS[1:])
def test_fast_kernels_give_the_same_tokens_whatever_way_their_steps_go(fast, overlap, is_captured):
    """The same steps, padded or not, captured or not, in flight or not."""
    few = [replace(r, max_new_tokens=30) for r in REQUESTS[:11]]
    truth, _ = another(fast, overlap=0, is_captured=False).play({0: few})
    answers, _ = another(fast, overlap=overlap, is_captured=is_captured).play({0: few})
    assert {n: a.token_ids for n, a in answers.items()} == {
        n: a.token_ids for n, a in truth.items()
    }


@pytest.mark.parametrize(("overlap", "is_captured"), WAYS[1:])
def test_float8_gives_the_same_tokens_whatever_way_its_steps_go(short, overlap, is_captured):
    few = [replace(r, max_new_tokens=30) for r in REQUESTS[:11]]
    truth, _ = another(short, overlap=0, is_captured=False).play({0: few})
    answers, _ = another(short, overlap=overlap, is_captured=is_captured).play({0: few})
    assert {n: a.token_ids for n, a in answers.items()} == {
        n: a.token_ids for n, a in truth.items()
    }


def test_float8_has_log_probabilities_near_those_of_bfloat16(fast, short):
    prompt = random.Random(3).choices(range(VOCAB_SIZE), k=700)
    asked = generate("a", prompt, sampling=replace(GREEDY, num_prompt_logprobs=1), max_new_tokens=1)
    told = [
        [one.logprob for one in rig.play({0: [asked]})[0]["a"].prompt_logprobs]
        for rig in (short, fast)
    ]
    errors = [abs(a - b) for a, b in zip(*told, strict=True)]
    assert 0 < mean(errors) < 0.15 * pstdev(told[1])


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 8, 13, 16])
def test_a_row_does_not_see_its_neighbours(exact, num_rows):
    one = replace(REQUESTS[0], max_new_tokens=24)
    other = another(exact, overlap=1, is_captured=True)
    alone, _ = other.play({0: [one]})
    crowd = [replace(r, max_new_tokens=24) for r in REQUESTS[1:num_rows]]
    answers, _ = other.play({0: [one, *crowd]})
    assert answers["r0"].token_ids == alone["r0"].token_ids


def test_rows_under_a_grammar_wait_for_their_tokens(exact):
    asked = {0: [bound("a"), bound("b", seed=3), free("c", 40)], 5: [bound("d", seed=9)]}
    truth, _ = another(exact, overlap=0, is_captured=False).play(asked)
    for overlap, is_captured in WAYS[1:]:
        answers, _ = another(exact, overlap=overlap, is_captured=is_captured).play(asked)
        # How much of "d" is cached depends on which steps have ended by then.
        assert {name: (a.token_ids, a.finish_reason) for name, a in answers.items()} == {
            name: (a.token_ids, a.finish_reason) for name, a in truth.items()
        }
