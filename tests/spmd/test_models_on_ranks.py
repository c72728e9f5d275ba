# SPDX-License-Identifier: Apache-2.0
"""Every model on every mesh: logits equal one device's, weights are shared, collectives pinned."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.models.hugging_face import make_twin, random_state
from tests.models.rig import BLOCK_TOKENS, integers
from tests.models.test_every_model import VARIANTS
from tests.models.test_stored_formats import MIXED
from tests.models.tiny import Arrays, llama_config, random_llama, write_gguf
from tests.spmd.ranks import FakeWorld
from tokenlight.base.errors import ConfigError, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.kernels import comm
from tokenlight.kv import DevicePool
from tokenlight.models import (
    CompiledModel,
    cache_specs,
    compile_model,
    load_model,
    plan_model,
    shard_model,
)
from tokenlight.nn import Step
from tokenlight.spmd import Limits, Mesh, Ranks, Widths
from tokenlight.spmd.moves import sent_bytes

LIMITS = Limits(T=64, S=64)
BLOCKS = 16
MESHES = {
    "tp2": Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2),
    "tp4": Widths(num_ranks=4, attn_tp=4, dense_tp=4, moe_tp=4),
    "attn-tp2-dp2": Widths(num_ranks=4, attn_tp=2, dense_tp=4, moe_tp=4),
    "ep2": Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=1),
    "ep2-tp2": Widths(num_ranks=4, attn_tp=4, dense_tp=4, moe_tp=2),
}
# Weights that every rank has whole, by the end of their buffer's name: what chooses experts, what
# makes latents, gains. Of a bias of a sum over ranks the first has the numbers, the others zeros.
REPLICATED = (
    "norm.weight_D",
    ".frequencies",
    "o_proj.bias_N",
    "down_proj.bias_N",
    "mlp.gate.weight",
    "mlp.gate.bias_N",
    "e_score_correction_bias",
    "q_a_proj.weight",
    "kv_a_proj_with_mqa.weight",
)
PROMPTS = {
    0: [5, 9, 2, 77, 31, 8, 100, 3],
    1: [44, 1, 250, 13, 13, 60, 7, 299],
    2: [90, 91, 92, 5, 200, 201, 4, 4],
    3: [1, 2, 3, 5, 8, 13, 21, 34],
}


DENSE = (
    "llama-biases",
    "mistral-window",
    "qwen2-tied-yarn",
    "qwen3-biases",
    "seed_oss",
    "granite",
    "gemma2",
    "gemma3",
)
SPARSE = ("qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss")
QUICK = {
    ("llama-biases", "tp4"),
    ("gemma3", "attn-tp2-dp2"),
    ("deepseek_v3", "attn-tp2-dp2"),
    ("gpt_oss", "ep2-tp2"),
}
DUMMIES = {("gemma3", "attn-tp2-dp2"), ("gpt_oss", "ep2-tp2")}
CASES = [
    pytest.param(
        model,
        MESHES[mesh],
        id=f"{model}-{mesh}",
        marks=[] if (model, mesh) in QUICK else [pytest.mark.slow],
    )
    for model, mesh in product(DENSE + SPARSE, MESHES)
    if model in SPARSE or not mesh.startswith("ep")
]
# Three kinds of layers, three widths: shared experts are split less than the experts beside them.
CASES += [
    pytest.param("deepseek_v3", widths, id=f"deepseek_v3-widths-{widths.dense_tp}")
    for widths in (
        Widths(num_ranks=4, attn_tp=2, dense_tp=2, moe_tp=1),
        Widths(num_ranks=4, attn_tp=1, dense_tp=1, moe_tp=1),
    )
]


def save(name: str, path: Path) -> Checkpoint:
    """Two layers of a variant, written as its own kind of checkpoint."""
    variant = VARIANTS[name]
    config = {**variant.config, "num_hidden_layers": 2}
    state = random_state(variant.model_type, config, seed=3)
    if variant.architecture is None:
        make_twin(variant.model_type, config, state).save_pretrained(path)
    else:
        write_gguf(path, variant.architecture, config, state, tokenizer=False)
    return open_checkpoint(path)


class Rank:
    """A rank's compiled model and its KV."""

    def __init__(
        self, checkpoint: Checkpoint, mesh: Mesh, world: FakeWorld, *, is_dummy: bool = False
    ) -> None:
        self.sharding = shard_model(checkpoint, mesh)
        self.model = load_model(checkpoint, sharding=self.sharding, is_dummy=is_dummy)
        self.pool = DevicePool(
            cache_specs(checkpoint, mesh),
            num_blocks=BLOCKS,
            block_tokens=BLOCK_TOKENS,
            dtype=torch.float32,
        )
        ranks = Ranks(mesh, self.sharding.layouts, world.rank(mesh.rank))
        self.compiled: CompiledModel = compile_model(
            self.model, self.pool, limits=LIMITS, ranks=ranks
        )

    def run(self, tokens: list[int], start: int) -> Tensor:
        count = len(tokens)
        step = Step(
            token_ids_T=integers(tokens),
            positions_T=integers(range(start, start + count)),
            query_starts=integers([0, count]),
            kv_lens=integers([start + count]),
            slots=integers([0]),
            block_table=integers(range(BLOCKS)).view(1, -1),
            sampled_rows=integers(range(count)),
            kv=self.pool,
        )
        return self.compiled(step).clone()  # the next step writes to the same memory


def run_all(
    checkpoint: Checkpoint, mesh: Mesh, *, is_dummy: bool = False
) -> tuple[FakeWorld, list[Rank], list[Tensor]]:
    """Prefill in two chunks, then a token; ranks with other tokens have another prompt."""
    world = FakeWorld(mesh.num_ranks)
    ranks = [Rank(checkpoint, mesh.at(r), world, is_dummy=is_dummy) for r in range(mesh.num_ranks)]
    tp = mesh.size(mesh.roles["attn_tp"])

    def steps(rank: int) -> Tensor:
        prompt = PROMPTS[rank // tp]
        chunks = (prompt[:5], prompt[5:7], prompt[7:])
        starts = (0, 5, 7)
        return torch.cat([ranks[rank].run(*step) for step in zip(chunks, starts, strict=True)])

    return world, ranks, world.run(steps)


def alone(checkpoint: Checkpoint, prompt: list[int], *, is_dummy: bool = False) -> Tensor:
    rank = Rank(checkpoint, Mesh(), FakeWorld(1), is_dummy=is_dummy)
    with torch.inference_mode():
        return rank.run(prompt, 0)


@pytest.mark.parametrize(("model", "widths"), CASES)
def test_logits_equal_one_device_and_weights_are_shared(
    tmp_path: Path, model: str, widths: Widths
) -> None:
    checkpoint, mesh = save(model, tmp_path / "model"), Mesh.of(widths)
    world, ranks, logits = run_all(checkpoint, mesh)
    groups = range(widths.num_ranks // widths.attn_tp)
    want = [alone(checkpoint, PROMPTS[group]) for group in groups]
    for rank, ours in enumerate(logits):
        theirs = want[rank // widths.attn_tp]
        assert float((ours - theirs).abs().max()) < 1e-4
        assert float(theirs.std()) > 0.5
    for rank in ranks:
        check_bytes(checkpoint, widths, rank.model)
    check_calls(checkpoint, mesh, world)


def check_calls(checkpoint: Checkpoint, mesh: Mesh, world: FakeWorld) -> None:
    """Every rank called what `tokenlight plan` tells, and sent what it tells."""
    f32, caches = torch.float32, cache_specs(checkpoint, mesh)
    plan = plan_model(shard_model(checkpoint, mesh), caches, dtype=f32, kv_dtype=f32)
    num_steps, num_tokens = 3, len(PROMPTS[0])
    for calls in world.calls:
        made = Counter(kind for kind, _, _ in calls)
        assert made == {op: num_steps * count for op, count in plan.collectives.items()}
        if "gather_routed" in made:
            continue  # what is sent there depends on the routes: see test_dispatch.py
        sent = sum(
            sent_bytes(getattr(comm, kind), num_bytes, len(group))
            for kind, group, num_bytes in calls
        )
        # Every token of these steps is a sampled row as well.
        assert sent == num_tokens * (plan.sent_token_bytes + plan.sent_sampled_row_bytes)


def check_bytes(checkpoint: Checkpoint, widths: Widths, model: nn.Module) -> None:
    """Exactly its share of every weight, but of those named above."""
    whole = dict(shard_model(checkpoint, Mesh()).shapes.named_buffers())
    heads = checkpoint.config["num_attention_heads"]
    kv_heads = checkpoint.config["num_key_value_heads"]
    heads_here = heads // widths.attn_tp + 2 * max(1, kv_heads // widths.attn_tp)
    for name, buffer in model.named_buffers():
        if name.endswith(REPLICATED):
            share = Fraction(1)
        elif "qkv_proj" in name:
            share = Fraction(heads_here, heads + 2 * kv_heads)
        elif name.endswith("experts.down_bias"):
            share = Fraction(widths.moe_tp, widths.num_ranks)
        elif ".experts." in name:
            share = Fraction(1, widths.num_ranks)
        else:
            share = Fraction(1, widths.dense_tp if ".mlp." in name else widths.attn_tp)
        assert buffer.nbytes == whole[name].nbytes * share, name


def test_experts_and_other_tokens_on_every_rank(tmp_path: Path) -> None:
    """DeepSeek-V3 with attention's data parallel: a layer gathers tokens, and scatters sums."""
    checkpoint = save("deepseek_v3", tmp_path / "model")
    mesh = Mesh.of(Widths(num_ranks=4, attn_tp=1, dense_tp=4, moe_tp=1))
    world, _, logits = run_all(checkpoint, mesh)
    for rank, ours in enumerate(logits):
        assert float((ours - alone(checkpoint, PROMPTS[rank])).abs().max()) < 1e-4
    num_layers, num_steps = 2, 3
    for calls in world.calls:
        assert Counter((kind, group) for kind, group, _ in calls) == {
            ("all_gather", (0, 1, 2, 3)): num_steps * num_layers,
            ("reduce_scatter", (0, 1, 2, 3)): num_steps * num_layers,
        }


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    config = llama_config(vocab_size=300, heads=4, kv_heads=4)
    write_gguf(tmp_path / "tiny.gguf", "llama", config, random_llama(config, seed=5, tied=True))
    return open_checkpoint(tmp_path / "tiny.gguf")


def test_a_llama_on_four_ranks_sums_twice_per_layer(llama: Checkpoint) -> None:
    """And once for the embedding; the head's vocabulary is gathered."""
    world, _, _ = run_all(llama, Mesh.of(MESHES["tp4"]))
    num_layers, num_steps = 2, 3
    everyone = (0, 1, 2, 3)
    for calls in world.calls:
        assert Counter((kind, group) for kind, group, _ in calls) == {
            ("all_reduce", everyone): num_steps * (2 * num_layers + 1),
            ("all_gather", everyone): num_steps,
        }


def test_attention_with_other_tokens_gathers_and_scatters(llama: Checkpoint) -> None:
    """Attention is summed over its pair; around the MLP tokens are gathered and scattered."""
    world, _, _ = run_all(llama, Mesh.of(MESHES["attn-tp2-dp2"]))
    num_layers, num_steps = 2, 3
    assert Counter((kind, group) for kind, group, _ in world.calls[3]) == {
        ("all_reduce", (2, 3)): num_steps * (2 * num_layers + 1),
        ("all_gather", (1, 3)): num_steps * num_layers,
        ("reduce_scatter", (1, 3)): num_steps * num_layers,
        ("all_gather", (2, 3)): num_steps,
    }


@pytest.mark.parametrize("formats", ["q8_0", "mixed"])
def test_quantized_weights_stay_so(tmp_path: Path, formats: str) -> None:
    """Also where the parts of a fused layer differ; each rank rounds activations as one would."""
    config = llama_config(vocab_size=300, hidden_size=256, heads=4, kv_heads=2)
    state = random_llama(config, seed=8, tied=True)
    by_name = {n: MIXED.get(n, "q8_0") if formats == "mixed" else "q8_0" for n in matrices(state)}
    write_gguf(tmp_path / "tiny.gguf", "llama", config, state, formats=by_name)
    checkpoint = open_checkpoint(tmp_path / "tiny.gguf")
    _, ranks, logits = run_all(checkpoint, Mesh.of(MESHES["tp2"]))
    theirs = alone(checkpoint, PROMPTS[0])
    for ours in logits:
        assert float((ours - theirs).norm() / theirs.norm()) < 1e-3
    joins = [i for i in ranks[0].compiled.body.instructions if i.op.name == "concat_columns"]
    assert len(joins) == (2 if formats == "mixed" else 0)
    assert sum(b.nbytes for b in ranks[0].model.buffers()) < 0.52 * checkpoint.num_bytes


def matrices(state: Arrays) -> list[str]:
    return [name for name, array in state.items() if array.ndim == 2]


def test_a_token_has_the_same_bits_however_its_prompt_is_cut(llama: Checkpoint) -> None:
    world, ranks, cut = run_all(llama, Mesh.of(MESHES["tp4"]))
    whole = world.run(lambda rank: ranks[rank].run(PROMPTS[0], 0))
    assert all(torch.equal(a, b) for a, b in zip(cut, whole, strict=True))


NEEDED = [
    pytest.param("gemma3", "attn-tp2-dp2"),
    pytest.param("deepseek_v3", "ep2"),
    pytest.param("llama-biases", "tp4", marks=pytest.mark.slow),
    pytest.param("qwen2-tied-yarn", "tp2", marks=pytest.mark.slow),
    pytest.param("deepseek_v3", "attn-tp2-dp2", marks=pytest.mark.slow),
    pytest.param("qwen3_moe", "ep2-tp2", marks=pytest.mark.slow),
    pytest.param("gpt_oss", "ep2-tp2", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "mesh"), NEEDED)
def test_without_any_one_collective_logits_are_others(
    tmp_path: Path, model: str, mesh: str
) -> None:
    """Of few tokens, whose sums are gathered, and of more."""
    widths = MESHES[mesh]
    world, ranks, _ = run_all(save(model, tmp_path / "model"), Mesh.of(widths))
    for count in (2, 8):

        def step(rank: int, count: int = count) -> Tensor:
            return ranks[rank].run(PROMPTS[rank // widths.attn_tp][:count], 0)

        want = world.run(step)
        calls = [kind for kind, _, _ in world.calls[0]]
        assert calls
        for skipped, kind in enumerate(calls):
            world.skipped = skipped
            got = world.run(step)
            world.skipped = None
            difference = max(float((a - b).abs().max()) for a, b in zip(got, want, strict=True))
            assert difference > 1e-3, f"{count} tokens: call {skipped}, {kind}, was for nothing"


@pytest.mark.parametrize(
    ("model", "mesh"),
    [
        pytest.param(model, mesh, marks=() if (model, mesh) in DUMMIES else pytest.mark.slow)
        for model, mesh in product(DENSE + SPARSE, ("attn-tp2-dp2", "ep2-tp2"))
    ],
)
def test_dummies_are_the_same_model_on_every_mesh(tmp_path: Path, model: str, mesh: str) -> None:
    checkpoint, widths = save(model, tmp_path / "model"), MESHES[mesh]
    _, _, logits = run_all(checkpoint, Mesh.of(widths), is_dummy=True)
    for rank, ours in enumerate(logits):
        theirs = alone(checkpoint, PROMPTS[rank // widths.attn_tp], is_dummy=True)
        assert float((ours - theirs).abs().max()) < 1e-4 * float(theirs.abs().max())
        assert float(theirs.std()) > 0


@pytest.mark.parametrize("mesh", ["tp4", "attn-tp2-dp2"])
def test_dummy_weights_are_the_same_on_every_mesh(llama: Checkpoint, mesh: str) -> None:
    whole = dict(load_model(llama, is_dummy=True).named_buffers())
    for rank in range(4):
        sharding = shard_model(llama, Mesh.of(MESHES[mesh]).at(rank))
        held = load_model(llama, is_dummy=True, sharding=sharding)
        down = held.get_buffer("layers.1.mlp.down_proj.weight")
        width = down.shape[1]
        assert width == 32
        assert torch.equal(
            down, whole["layers.1.mlp.down_proj.weight"][:, rank * width : (rank + 1) * width]
        )
        norm = "layers.0.input_layernorm.weight_D"
        assert torch.equal(held.get_buffer(norm), whole[norm])


def test_heads_that_cannot_be_shared_are_refused(llama: Checkpoint) -> None:
    widths = Widths(num_ranks=3, attn_tp=3, dense_tp=3, moe_tp=3)
    with pytest.raises(ConfigError, match=r"4 attention heads .* over 3 ranks"):
        shard_model(llama, Mesh.of(widths))


def test_a_cut_through_a_block_is_refused_with_the_tensor(tmp_path: Path) -> None:
    """256 features in blocks of 256 cannot be the inputs of two ranks."""
    config = llama_config(vocab_size=300, hidden_size=256, heads=4, kv_heads=2)
    config = {**config, "intermediate_size": 256}
    path = tmp_path / "tiny.gguf"
    write_gguf(path, "llama", config, random_llama(config, seed=1, tied=True), format="q4_k")
    checkpoint = open_checkpoint(path)
    mesh = Mesh.of(MESHES["tp2"])
    with pytest.raises(UnsupportedCheckpoint, match=r"attn_output.weight.* q4_k block of 256"):
        load_model(checkpoint, sharding=shard_model(checkpoint, mesh))
