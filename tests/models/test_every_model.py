# SPDX-License-Identifier: Apache-2.0
"""Logits of every model equal transformers', from a GGUF file and from a folder saved by it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.models.hugging_face import logits_of, make_twin, random_state
from tests.models.rig import Rig
from tests.models.tiny import write_gguf
from tokenlight.checkpoint import open_checkpoint
from tokenlight.models import ALIASES, model_types

TOLERANCE = 1e-4
NUM_TOKENS = 60

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    model_type: str
    architecture: str | None = None
    """GGUF's; None where such a file cannot say what this variant needs."""
    changes: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    """Of what only models of its kind have."""
    twin_type: str = ""
    """Whose configuration it is in transformers, where that has no class of this name."""

    @property
    def config(self) -> dict[str, Any]:
        return {**SIZES, **self.sizes, **self.changes}


def rope(theta: float = 10000.0, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": theta, **parameters}}


def gemma_ropes(**full: Any) -> dict[str, Any]:
    full = {"rope_type": "default", "rope_theta": 1_000_000.0, **full}
    sliding = {"rope_type": "default", "rope_theta": 10_000.0}
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


GEMMA3 = {
    "num_hidden_layers": 7,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
    "tie_word_embeddings": True,
}
QWEN3_MOE = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
LATENT = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 40,
}
GPT_OSS = {
    "num_hidden_layers": 4,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": 8,
    **rope(150_000.0, **YARN, beta_fast=32.0, beta_slow=1.0, truncate=False),
}
VARIANTS = {
    "llama": Variant(model_type="llama", architecture="llama"),
    "llama-biases": Variant(
        model_type="llama",
        architecture="llama",
        changes={"attention_bias": True, "mlp_bias": True},
    ),
    "llama-linear": Variant(
        model_type="llama", architecture="llama", changes=rope(rope_type="linear", factor=4.0)
    ),
    "llama-llama3": Variant(model_type="llama", architecture="llama", changes=rope(**LLAMA3)),
    "llama-yarn": Variant(model_type="llama", architecture="llama", changes=rope(**YARN)),
    "mistral": Variant(
        model_type="mistral", architecture="llama", changes={"sliding_window": None}
    ),
    "mistral-window": Variant(model_type="mistral", changes={"sliding_window": 8}),
    "qwen2": Variant(model_type="qwen2", architecture="qwen2"),
    "qwen2-tied-yarn": Variant(
        model_type="qwen2",
        architecture="qwen2",
        changes={"tie_word_embeddings": True, **rope(1_000_000.0, **YARN)},
    ),
    "qwen2-window": Variant(
        model_type="qwen2",
        changes={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": Variant(
        model_type="qwen3", architecture="qwen3", changes={"head_dim": 32, "attention_bias": False}
    ),
    "qwen3-biases": Variant(model_type="qwen3", changes={"attention_bias": True}),
    "seed_oss": Variant(model_type="seed_oss", architecture="seed_oss", changes={"head_dim": 32}),
    "granite": Variant(
        model_type="granite",
        changes={
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.4,
            "residual_multiplier": 0.22,
            "logits_scaling": 0.125,
        },
    ),
    "qwen3_moe": Variant(
        model_type="qwen3_moe",
        architecture="qwen3moe",
        sizes=QWEN3_MOE,
        changes={"norm_topk_prob": True},
    ),
    "qwen3_moe-some-dense": Variant(
        model_type="qwen3_moe",
        sizes=QWEN3_MOE,
        changes={
            "num_hidden_layers": 4,
            "mlp_only_layers": [3],
            "decoder_sparse_step": 2,
        },
    ),
    "deepseek_v2": Variant(
        model_type="deepseek_v2",
        sizes=LATENT,
        changes={"topk_method": "greedy", "routed_scaling_factor": 1.5},
    ),
    "deepseek_v2-groups-yarn": Variant(
        model_type="deepseek_v2",
        sizes=LATENT,
        changes={
            "q_lora_rank": None,
            "topk_method": "group_limited_greedy",
            **rope(**YARN, mscale=0.707, mscale_all_dim=0.9),
        },
    ),
    "deepseek_v3": Variant(
        model_type="deepseek_v3",
        architecture="deepseek2",
        sizes=LATENT,
        changes={"norm_topk_prob": True, "routed_scaling_factor": 2.5},
    ),
    "deepseek_v3-yarn": Variant(
        model_type="deepseek_v3",
        architecture="deepseek2",
        sizes=LATENT,
        changes={
            "q_lora_rank": None,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
            **rope(**YARN, mscale=1.0, mscale_all_dim=1.0),
        },
    ),
    "deepseek_v3-halves": Variant(
        model_type="deepseek_v3",
        sizes=LATENT,
        changes={"rope_interleave": False, "attention_bias": True},
    ),
    "kimi_k2": Variant(
        model_type="kimi_k2",
        twin_type="deepseek_v3",
        sizes=LATENT,
        changes={"n_group": 1, "topk_group": 1},
    ),
    "gpt_oss": Variant(model_type="gpt_oss", architecture="gpt-oss", sizes=GPT_OSS),
    "gpt_oss-clamped": Variant(
        model_type="gpt_oss", sizes=GPT_OSS, changes={"swiglu_limit": 0.5, "swiglu_alpha": 1.3}
    ),
    "gemma2": Variant(
        model_type="gemma2",
        architecture="gemma2",
        changes={
            "num_hidden_layers": 3,
            "sliding_window": 8,
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 5.0,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": Variant(
        model_type="gemma3_text", architecture="gemma3", changes={**GEMMA3, **gemma_ropes()}
    ),
    "gemma3-linear-softcap": Variant(
        model_type="gemma3_text",
        architecture="gemma3",
        changes={
            **GEMMA3,
            **gemma_ropes(rope_type="linear", factor=8.0),
            "final_logit_softcapping": 5.0,
        },
    ),
}
LAYOUTS = ("huggingface", "gguf")
CASES = {
    f"{name}-{layout}": (variant, layout)
    for name, variant in VARIANTS.items()
    for layout in LAYOUTS
    if layout == "huggingface" or variant.architecture
}


@pytest.mark.parametrize(("variant", "layout"), CASES.values(), ids=CASES)
def test_equals_transformers(tmp_path: Path, variant: Variant, layout: str) -> None:
    """In chunks and one by one, so that windows and rotations meet a cache."""
    twin_type = variant.twin_type or variant.model_type
    state = random_state(twin_type, variant.config, seed=3)
    twin = make_twin(twin_type, variant.config, state)
    if layout == "gguf":
        path = tmp_path / "tiny.gguf"
        write_gguf(path, variant.architecture, variant.config, state, tokenizer=False)
    else:
        path = tmp_path / "model"
        twin.save_pretrained(path, max_shard_size="60KB")
        if variant.twin_type:
            raw = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps(raw | {"model_type": variant.model_type}))
    prompt = np.random.default_rng(4).integers(0, 300, NUM_TOKENS).tolist()
    rig = Rig(open_checkpoint(path))
    chunks = [prompt[:21], prompt[21:50], *([token] for token in prompt[50:])]
    ours = torch.cat([rig.step({0: chunk})[0] for chunk in chunks])
    theirs = logits_of(twin, prompt)
    assert float((ours - theirs).abs().max()) < TOLERANCE
    assert float(theirs.std()) > 1


def test_the_text_part_of_a_model_that_sees(tmp_path: Path) -> None:
    """Gemma 3 as most people have it: a larger configuration, prefixed names, tensors of vision."""
    variant = VARIANTS["gemma3"]
    state = random_state(variant.model_type, variant.config, seed=5)
    twin = make_twin(variant.model_type, variant.config, state)
    twin.save_pretrained(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())
    text.pop("tie_word_embeddings")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    for prefix in ("language_model.model.", "model.language_model."):
        tensors = {
            prefix + name.removeprefix("model."): torch.from_numpy(array)
            for name, array in state.items()
        }
        tensors["vision_tower.embeddings.weight"] = torch.zeros(3)
        save_file(tensors, tmp_path / "model.safetensors")
        prompt = list(range(40, 70))
        ours = Rig(open_checkpoint(tmp_path)).step({0: prompt})[0]
        assert float((ours - logits_of(twin, prompt)).abs().max()) < TOLERANCE


def test_every_model_file_is_compared() -> None:
    compared = {variant.model_type for variant in VARIANTS.values()}
    names = compared | {ALIASES.get(name, name) for name in compared}
    assert set(model_types()) <= names
