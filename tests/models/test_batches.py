# SPDX-License-Identifier: Apache-2.0
"""Models with experts or latents: a token's logits are the same bits however it is computed."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.hugging_face import logits_of, make_twin, random_state
from tests.models.rig import BLOCK_TOKENS, Rig
from tests.models.test_every_model import TOLERANCE, VARIANTS
from tests.models.tiny import write_gguf
from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import open_checkpoint
from tokenlight.spmd import NativeProgram


def tokens(count: int, *, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, count).tolist()


def logits(rig: Rig, new: dict[int, list[int]]) -> dict[int, Tensor]:
    """Of each slot, as copies: a step may give memory that the next one writes."""
    return {slot: rows.clone() for slot, rows in zip(new, rig.step(new), strict=True)}


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3-yarn", "gpt_oss"])
def test_any_way_gives_the_same_bits(tmp_path: Path, name: str) -> None:
    """Whole, mixed with others, token by token, preempted, and after a hit in the prefix cache."""
    variant = VARIANTS[name]
    state = random_state(variant.model_type, variant.config, seed=8)
    twin = make_twin(variant.model_type, variant.config, state)
    write_gguf(tmp_path / "tiny.gguf", variant.architecture, variant.config, state, tokenizer=False)
    rig = Rig(open_checkpoint(tmp_path / "tiny.gguf"))
    prompt, other = tokens(40, seed=1), tokens(30, seed=2)
    whole = logits(rig, {0: prompt})[0]
    theirs = logits_of(twin, prompt)
    assert float((whole - theirs).abs().max()) < TOLERANCE
    assert float(theirs.std()) > 1
    ways = {
        "mixed": [
            logits(rig, {1: prompt[:9]})[1],
            logits(rig, {2: other[:1], 1: prompt[9:33]})[1],
            *(logits(rig, {1: [token], 2: [token]})[1] for token in prompt[33:]),
        ],
    }
    rig.restart(1)
    ways["preempted"] = [
        logits(rig, {2: other[1:], 1: prompt[:30]})[1],
        logits(rig, {1: prompt[30:]})[1],
    ]
    shared = 5
    rig.block_table[3, :shared] = rig.block_table[0, :shared]
    rig.lengths[3] = shared * BLOCK_TOKENS
    hit = logits(rig, {2: [5], 3: prompt[shared * BLOCK_TOKENS :]})[3]
    ways["prefix hit"] = [whole[: shared * BLOCK_TOKENS], hit]
    for way, parts in ways.items():
        assert torch.equal(torch.cat(parts), whole), way


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_no_python_between_kernels(tmp_path: Path, name: str) -> None:
    variant = VARIANTS[name]
    state = random_state(variant.model_type, variant.config, seed=12)
    write_gguf(tmp_path / "tiny.gguf", variant.architecture, variant.config, state, tokenizer=False)
    rig = Rig(open_checkpoint(tmp_path / "tiny.gguf"))
    step = rig.make_step({0: [1, 2, 3]})
    assert NativeProgram(rig.compiled.body).in_python(step) == []


def test_older_files_have_one_projection_of_latents(tmp_path: Path) -> None:
    """As GGUF files of DeepSeek had before llama.cpp absorbed it."""
    variant = VARIANTS["deepseek_v3"]
    state = random_state(variant.model_type, variant.config, seed=10)
    prompt = tokens(20, seed=4)
    given = []
    for is_split in (True, False):
        path = tmp_path / f"{is_split}.gguf"
        write_gguf(path, "deepseek2", variant.config, state, tokenizer=False, splits_kv_b=is_split)
        given.append(Rig(open_checkpoint(path)).step({0: prompt})[0])
    assert torch.equal(*given)


def test_layers_that_draft_are_left_out(tmp_path: Path) -> None:
    """DeepSeek V3's files have one after the last; any other tensor too many is named."""
    variant = VARIANTS["deepseek_v3"]
    config = variant.config
    twin = make_twin("deepseek_v3", config, random_state("deepseek_v3", config, seed=13))
    twin.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"] = torch.ones(4, 4)
    save_file(tensors, tmp_path / "model.safetensors")
    prompt = tokens(9, seed=6)
    ours = Rig(open_checkpoint(tmp_path)).step({0: prompt})[0]
    assert float((ours - logits_of(twin, prompt)).abs().max()) < TOLERANCE
    save_file(tensors | {"model.layers.2.extra": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedCheckpoint, match=r"without a place .*'model\.layers\.2\.extra'"):
        Rig(open_checkpoint(tmp_path))


def mxfp4_halves(blocks: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """GGUF's rows [..., 17 * blocks] as gpt-oss's checkpoints keep them: blocks and scales."""
    by_block = torch.from_numpy(blocks).unflatten(-1, (-1, 17))
    low, high = by_block[..., 1:] & 0xF, by_block[..., 1:] >> 4
    elements = torch.cat([low, high], dim=-1)
    return elements[..., ::2] | elements[..., 1::2] << 4, by_block[..., 0].contiguous()


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    """gpt-oss as it is published, and its GGUF file: quantized alike, dequantized by `gguf`."""
    variant = VARIANTS["gpt_oss"]
    config = {**variant.config, "intermediate_size": 64}
    state = dict(random_state("gpt_oss", config, seed=11))
    kind = gguf.GGMLQuantizationType.MXFP4
    stored = {}
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "down_proj"))]:
        rows = gguf.quants.quantize(np.ascontiguousarray(state[name].swapaxes(1, 2)), kind)
        state[name] = np.ascontiguousarray(gguf.quants.dequantize(rows, kind).swapaxes(1, 2))
        stored[f"{name}_blocks"], stored[f"{name}_scales"] = mxfp4_halves(rows)
    twin = make_twin("gpt_oss", config, state)
    folder, file = tmp_path / "folder", tmp_path / "tiny.gguf"
    twin.save_pretrained(folder)
    dense = load_file(folder / "model.safetensors")
    kept = {n: tensor for n, tensor in dense.items() if f"{n}_blocks" not in stored}
    save_file(kept | stored, folder / "model.safetensors")
    raw = json.loads((folder / "config.json").read_text())
    raw["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(raw))
    experts = dict.fromkeys(gguf_experts(config), "mxfp4")
    write_gguf(file, "gpt-oss", config, state, tokenizer=False, formats=experts)
    prompt = tokens(30, seed=5)
    theirs = logits_of(twin, prompt)
    ours = [Rig(open_checkpoint(path)).step({0: prompt})[0] for path in (folder, file)]
    assert torch.equal(*ours)
    # Under quantized weights activations are rounded to 15 bits.
    assert float((ours[0] - theirs).norm() / theirs.norm()) < 1e-3
    raw["quantization_config"] = {"quant_method": "awq"}
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(UnsupportedCheckpoint, match="quantized as 'awq'"):
        open_checkpoint(folder)


def gguf_experts(config: dict[str, object]) -> list[str]:
    """Names of experts' matrices on their way into a GGUF file."""
    return [
        f"model.layers.{layer}.mlp.experts.{part}_proj.weight"
        for layer in range(int(str(config["num_hidden_layers"])))
        for part in ("gate", "up", "down")
    ]
