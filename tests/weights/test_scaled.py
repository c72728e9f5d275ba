# SPDX-License-Identifier: Apache-2.0
"""Quantized folders of Hugging Face's kind: the numbers of their formulas, or a clear error."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.models.hugging_face import logits_of, make_twin, random_state
from tests.models.rig import Rig
from tests.models.test_every_model import VARIANTS
from tests.weights import published
from tests.weights.published import Publish, Published
from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import open_checkpoint
from tokenlight.weights.mapped import MappedFiles, format_of
from tokenlight.weights.stacked import dequantized_rows

CONFIG = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "eos_token_id": 3,
}  # fmt: skip


def compressed(layout: str, **weights: Any) -> dict[str, Any]:
    """A configuration of compressed-tensors with one group of layers."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
BLOCKS = {**FP8, "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True, "desc_act": False}
FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}

# Name -> configuration, how a matrix is published, the format that it becomes
LAYOUTS: dict[str, tuple[Mapping[str, Any], Publish, str]] = {
    "fp8-blocks": (BLOCKS, published.fp8(128, 128), "fp8_e4m3_64"),
    "fp8-tensor": (FP8, published.fp8(0, 0, name="weight_scale"), "fp8_e4m3_64"),
    "fp8-channel": (FP8, published.fp8(1, 0, name="weight_scale"), "fp8_e4m3_64"),
    "fbgemm": (
        {"quant_method": "fbgemm_fp8"}, published.fp8(1, 0, name="weight_scale"), "fp8_e4m3_64",
    ),
    "float-channel": (
        compressed("float-quantized", **FLOAT8, strategy="channel"),
        published.fp8(1, 0, name="weight_scale"), "fp8_e4m3_64",
    ),
    "float-blocks": (
        compressed("float-quantized", **FLOAT8, strategy="block", block_structure=[128, 128]),
        published.fp8(128, 128, name="weight_scale"), "fp8_e4m3_64",
    ),
    "awq": (AWQ, published.awq(32), "q5_0"),
    "awq-whole-rows": ({**AWQ, "group_size": -1}, published.awq(-1), "q5_0"),
    "gptq": (GPTQ, published.gptq(64, symmetric=True), "q4_0"),
    "gptq-zeros": ({**GPTQ, "sym": False}, published.gptq(64, symmetric=False), "q5_0"),
    "gptq-v2": (
        {**GPTQ, "sym": False, "checkpoint_format": "gptq_v2"},
        published.gptq(64, symmetric=False, less=0), "q5_0",
    ),
    "gptq-scattered": (
        {**GPTQ, "desc_act": True}, published.gptq(64, symmetric=True, scattered=True), "f16",
    ),
    "words": (compressed("pack-quantized", **INT4), published.words(32, symmetric=True), "q4_0"),
    "words-zeros": (
        compressed("pack-quantized", **{**INT4, "symmetric": False}),
        published.words(32, symmetric=False), "q5_0",
    ),
    "words-channel": (
        compressed("pack-quantized", **{**INT4, "strategy": "channel", "group_size": None}),
        published.words(-1, symmetric=True), "q4_0",
    ),
    "words-float32": (
        compressed("pack-quantized", **INT4),
        published.words(32, symmetric=True, dtype=torch.float32), "f32",
    ),
    "mxfp4": (compressed("mxfp4-pack-quantized", **MXFP4), published.mxfp4, "mxfp4"),
}  # fmt: skip


def write(
    folder: Path, config: Mapping[str, Any], quantization: Any, tensors: Mapping[str, Tensor]
) -> Path:
    folder.mkdir(exist_ok=True)
    stated = {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(stated))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def one_matrix(folder: Path, quantization: Any, publish: Publish, n: int, k: int) -> Published:
    """A folder whose only matrix is x.weight."""
    weight = torch.randn(n, k, generator=torch.Generator().manual_seed(n)) / k**0.5
    made = publish(weight)
    write(folder, CONFIG, quantization, {f"x.{name}": each for name, each in made.tensors.items()})
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_matrix_is_what_its_formula_says(name: str, tmp_path: Path) -> None:
    quantization, publish, becomes = LAYOUTS[name]
    made = one_matrix(tmp_path, quantization, publish, 136, 192)
    checkpoint = open_checkpoint(tmp_path)
    (entry,) = checkpoint.tensors.values()
    assert (entry.name, entry.shape) == ("x.weight", (136, 192))
    files = MappedFiles(checkpoint.layout)
    stored = files.read(entry)
    assert stored.format.name == becomes
    if becomes not in ("f16", "f32"):
        assert format_of(entry) == stored.format
    numbers = dequantized_rows(stored)
    want = made.numbers.half().float() if becomes == "f16" else made.numbers
    assert torch.equal(numbers, want)
    files.release(entry)
    assert torch.equal(dequantized_rows(files.read(entry)), want)


@pytest.mark.parametrize("name", ["fp8-blocks", "float-channel", "awq", "gptq", "words-zeros"])
def test_logits_are_those_of_the_numbers(name: str, tmp_path: Path) -> None:
    quantization, publish, _ = LAYOUTS[name]
    config = {**VARIANTS["qwen3"].config, "hidden_size": 64, "intermediate_size": 128}
    state = random_state("qwen3", config, seed=4)
    tensors, truth = published.published_state(state, publish)
    twin = make_twin("qwen3", config, truth)
    write(tmp_path, twin.config.to_dict(), quantization, tensors)
    prompt = [5, 9, 77, 3, 250, 8, 8, 41]
    ours = Rig(open_checkpoint(tmp_path)).step({0: prompt})[0]
    theirs = logits_of(twin, prompt)
    # Under numbers in blocks of GGUF's formats activations are rounded to 15 bits.
    limit = 1e-5 if quantization["quant_method"] == "fp8" else 1e-3
    assert float((ours - theirs).norm() / theirs.norm()) < limit


# Sizes whose rows are whole blocks.
WITH_EXPERTS = {
    "qwen3_moe": {"hidden_size": 64, "moe_intermediate_size": 64, "intermediate_size": 64},
    "deepseek_v3": {
        "hidden_size": 64,
        "moe_intermediate_size": 64,
        "intermediate_size": 64,
        "q_lora_rank": 32,
        "v_head_dim": 16,
    },
}


def apart(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """transformers' stack of experts as checkpoints have it: a matrix for each."""
    path, _, kind = name.rpartition(".")
    if kind == "gate_up_proj":
        gates, ups = np.split(array, 2, axis=1)
        return {
            f"{path}.{expert}.{part}_proj.weight": each[expert]
            for expert in range(len(array))
            for part, each in (("gate", gates), ("up", ups))
        }
    return {f"{path}.{expert}.{kind}.weight": each for expert, each in enumerate(array)}


def stacked(name: str, truth: Mapping[str, Any], num_experts: int) -> np.ndarray:
    """The inverse of `apart`."""
    path, _, kind = name.rpartition(".")
    parts = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
    return np.stack(
        [
            np.concatenate([truth[f"{path}.{expert}.{part}.weight"] for part in parts])
            for expert in range(num_experts)
        ]
    )


@pytest.mark.parametrize(
    ("model_type", "name"),
    [("qwen3_moe", "fp8-blocks"), ("qwen3_moe", "awq"), ("deepseek_v3", "fp8-blocks")],
)
def test_experts_are_joined_one_by_one(model_type: str, name: str, tmp_path: Path) -> None:
    quantization, publish, _ = LAYOUTS[name]
    config = {**VARIANTS[model_type].config, **WITH_EXPERTS[model_type]}
    state = random_state(model_type, config, seed=6)
    stacks = [key for key in state if ".experts." in key]
    matrices = {key: array for key, array in state.items() if key not in stacks}
    for key in stacks:
        matrices |= apart(key, state[key])
    tensors, truth = published.published_state(matrices, publish)
    whole = {key: stacked(key, truth, len(state[key])) for key in stacks}
    twin = make_twin(model_type, config, {key: (truth | whole)[key] for key in state})
    write(tmp_path, twin.config.to_dict(), quantization, tensors)
    prompt = [5, 9, 77, 3, 250, 8]
    ours = Rig(open_checkpoint(tmp_path)).step({0: prompt})[0]
    theirs = logits_of(twin, prompt)
    limit = 1e-5 if name == "fp8-blocks" else 1e-3
    assert float((ours - theirs).norm() / theirs.norm()) < limit


REFUSED: dict[str, tuple[Any, str]] = {
    "another method": ({"quant_method": "bitsandbytes"}, "'bitsandbytes', which is not supported"),
    "no method": ([], r"quantized as None, .*supported are \(fp8: e4m3"),
    "ambiguous fp8": ({**FP8, "fmt": "e5m2"}, "with fmt 'e5m2'"),
    "other blocks": ({**FP8, "weight_block_size": [64, 64]}, r"weight_block_size \[64, 64\]"),
    "3 bits": ({**GPTQ, "bits": 3}, "'gptq', with bits 3"),
    "another layout": ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
    "gemv": ({**AWQ, "version": "gemv"}, "version 'gemv'"),
    "no groups": ({"quant_method": "compressed-tensors"}, "config_groups that are missing"),
    "int8": (
        compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
        "8 bits, type 'int', strategy 'channel' and format 'int-quantized'",
    ),
    "nvfp4": (
        compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group"),
        "format 'nvfp4-pack-quantized'",
    ),
}


@pytest.mark.parametrize(("quantization", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_read_is_named(quantization: Any, what: str, tmp_path: Path) -> None:
    write(tmp_path, CONFIG, quantization, {"x.weight": torch.ones(2, 2)})
    with pytest.raises(UnsupportedCheckpoint, match=what):
        open_checkpoint(tmp_path)


def test_groups_that_differ_are_refused(tmp_path: Path) -> None:
    both = compressed("mixed-precision", **INT4)
    both["config_groups"]["group_1"] = {"targets": ["re:.*down_proj"], "weights": FLOAT8}
    write(tmp_path, CONFIG, both, {"x.weight": torch.ones(2, 2)})
    with pytest.raises(UnsupportedCheckpoint, match="store weights in different ways"):
        open_checkpoint(tmp_path)


def test_layers_that_are_left_out_stay_as_they_are(tmp_path: Path) -> None:
    made = published.fp8(128, 128)(torch.randn(4, 64))
    tensors = {f"x.{name}": each for name, each in made.tensors.items()}
    plain = {
        "y.weight": torch.randn(4, 64),
        "x.bias": torch.ones(4),
        "x.input_scale": torch.ones(1),
    }
    write(tmp_path, CONFIG, BLOCKS, tensors | plain)
    found = open_checkpoint(tmp_path).tensors
    assert {name: entry.format for name, entry in found.items()} == {
        "x.weight": "fp8_e4m3:128x128", "y.weight": "f32", "x.bias": "f32",
    }  # fmt: skip


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    made = published.awq(32)(torch.randn(8, 64))
    for absent, error, what in (
        ("qweight", CheckpointCorrupt, r"'x\.scales' is there without 'x\.qweight'"),
        ("qzeros", CheckpointCorrupt, r"'x\.scales' is there without 'x\.qzeros'"),
        ("scales", UnsupportedCheckpoint, r"'x\.q[a-z]+' is stored as i32, .* no 'scales' beside"),
    ):
        kept = {f"x.{name}": each for name, each in made.tensors.items() if name != absent}
        write(tmp_path, CONFIG, AWQ, kept)
        with pytest.raises(error, match=what):
            open_checkpoint(tmp_path)


def test_parts_that_do_not_fit_are_named(tmp_path: Path) -> None:
    made = one_matrix(tmp_path, BLOCKS, published.fp8(128, 128), 136, 192)
    tensors = {f"x.{name}": each for name, each in made.tensors.items()}
    bad = tensors["x.weight"].clone()
    bad.view(torch.uint8)[3, 7] = 0xFF
    for changed, what in (
        ({"x.weight_scale_inv": torch.ones(1, 2)}, r"x\.weight_scale_inv' \[1, 2\]"),
        ({"x.weight": tensors["x.weight"].float()}, r"do not make a matrix of fp8_e4m3:128x128"),
        ({"x.weight": bad}, "some are NaN"),
    ):
        write(tmp_path, CONFIG, BLOCKS, tensors | changed)
        checkpoint = open_checkpoint(tmp_path)
        with pytest.raises(CheckpointCorrupt, match=what):
            MappedFiles(checkpoint.layout).read(checkpoint.tensors["x.weight"])


def test_rows_that_blocks_do_not_divide_are_refused(tmp_path: Path) -> None:
    one_matrix(tmp_path, FP8, published.fp8(0, 0, name="weight_scale"), 4, 40)
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(UnsupportedCheckpoint, match=r"'x\.weight'.* no whole number of blocks"):
        MappedFiles(checkpoint.layout).read(checkpoint.tensors["x.weight"])
