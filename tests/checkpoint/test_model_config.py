# SPDX-License-Identifier: Apache-2.0
"""A configuration made whole says what transformers makes of the same config.json."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from tokenlight.base.errors import CheckpointCorrupt, CheckpointError, UnsupportedCheckpoint
from tokenlight.checkpoint.model_config import complete_config

LLAMA = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
}
GEMMA3 = {"model_type": "gemma3_text", "vocab_size": 1000, "num_hidden_layers": 13}

# As files of several years spell it.
FILES: dict[str, dict[str, Any]] = {
    "llama, least": LLAMA,
    "llama 3.1, old spelling": {
        **LLAMA,
        "num_key_value_heads": 2,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "eos_token_id": [128, 129],
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "llama, null head_dim": {**LLAMA, "head_dim": None, "rope_scaling": None},
    "llama, causal": {**LLAMA, "use_bidirectional_attention": False, "is_causal": True},
    "llama, wide heads": {**LLAMA, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "llama, new spelling": {
        **LLAMA,
        "rope_parameters": {"rope_type": "default", "rope_theta": 77777.0},
    },
    "llama, both spellings": {
        **LLAMA, "rope_parameters": {"rope_type": "default"},
        "rope_scaling": {"type": "linear", "factor": 2.0},
    },
    "mistral, window by default": {**LLAMA, "model_type": "mistral"},
    "mistral, no window": {**LLAMA, "model_type": "mistral", "sliding_window": None},
    "qwen2": {
        **LLAMA, "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32768,
        "num_key_value_heads": 4, "rope_theta": 1000000.0, "tie_word_embeddings": True,
    },
    "qwen2, window above": {
        **LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16,
        "max_window_layers": 2, "num_key_value_heads": 4,
    },
    "qwen2.5, yarn by hand": {
        **LLAMA, "model_type": "qwen2", "max_position_embeddings": 32768, "num_key_value_heads": 8,
        "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
        },
    },
    "qwen3": {**LLAMA, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 128},
    "gemma2, least": {**GEMMA3, "model_type": "gemma2"},
    "gemma3, least": GEMMA3,
    "gemma3, old spelling": {
        **GEMMA3, "sliding_window": 512, "sliding_window_pattern": 4, "rope_theta": 1000000.0,
        "rope_local_base_freq": 12345.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "query_pre_attn_scalar": 168, "final_logit_softcapping": 30.0,
    },
    "gemma3, scaling added to the new spelling": {
        **GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 12345.0},
        },
    },
    "gemma3, layer types": {
        **GEMMA3, "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"],
    },
}  # fmt: skip
SPARSE: dict[str, dict[str, Any]] = {
    "qwen3_moe, least": {**LLAMA, "model_type": "qwen3_moe", "num_key_value_heads": 2},
    "qwen3_moe, a window": {
        **LLAMA, "model_type": "qwen3_moe", "num_key_value_heads": 2, "num_experts": 16,
        "num_experts_per_tok": 4, "norm_topk_prob": True, "mlp_only_layers": [1],
        "use_sliding_window": True, "sliding_window": 8,
    },
    "deepseek_v2, greedy": {
        **LLAMA, "model_type": "deepseek_v2", "num_experts_per_tok": 6, "q_lora_rank": None,
        "first_k_dense_replace": 1,
    },
    "deepseek_v2, groups": {
        **LLAMA, "model_type": "deepseek_v2", "num_experts_per_tok": 6, "n_routed_experts": 160,
        "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3,
        "routed_scaling_factor": 16.0, "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
            "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707,
        },
    },
    "deepseek_v3, least": {**LLAMA, "model_type": "deepseek_v3"},
    "gpt_oss, least": {"model_type": "gpt_oss", "num_hidden_layers": 4},
    "gpt_oss, new spelling": {
        "model_type": "gpt_oss", "num_hidden_layers": 4,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 77777.0, "factor": 8.0,
            "original_max_position_embeddings": 2048, "truncate": False,
        },
    },
    "gpt_oss, as published": {
        "model_type": "gpt_oss", "num_hidden_layers": 4, "num_local_experts": 32,
        "experts_per_token": 4, "head_dim": 64, "rope_theta": 150000,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []},
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        },
    },
}  # fmt: skip
FILES |= SPARSE

KEYS = sorted({key for raw in FILES.values() for key in raw} | {"rope_parameters", "hidden_act"})
ROPE_KEYS = (
    "rope_type", "type", "factor", "rope_theta", "original_max_position_embeddings", "truncate",
    "low_freq_factor", "high_freq_factor", "full_attention", "sliding_attention",
    "attention_factor", "partial_rotary_factor",
)  # fmt: skip

SAME = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings",
)  # fmt: skip


def theirs_of(raw: dict[str, Any], directory: Path) -> Any:
    """transformers' reading of a config.json with these contents."""
    (directory / "config.json").write_text(json.dumps(raw))
    return AutoConfig.from_pretrained(directory)


@pytest.mark.parametrize("raw", FILES.values(), ids=FILES)
def test_agrees_with_transformers(tmp_path: Path, raw: dict[str, Any]) -> None:
    ours, theirs = complete_config(raw, Path("config.json")), theirs_of(raw, tmp_path)
    for key in SAME:
        if key == "num_key_value_heads" and "num_key_value_heads" not in raw:
            continue
        assert ours[key] == getattr(theirs, key), key
    head_dim = getattr(theirs, "head_dim", None)
    assert ours["head_dim"] == (head_dim or theirs.hidden_size // theirs.num_attention_heads)
    for key in ("attention_bias", "mlp_bias"):
        assert ours[key] == getattr(theirs, key, False)
    if getattr(theirs, "layer_types", None):
        assert ours["layer_types"] == theirs.layer_types
    if "sliding_attention" in ours["layer_types"]:
        assert ours["sliding_window"] == theirs.sliding_window
    else:
        assert ours["sliding_window"] is None
    assert_same_rope(ours["rope_parameters"], theirs.rope_parameters)
    scalar = getattr(theirs, "query_pre_attn_scalar", ours["head_dim"])
    assert ours["query_pre_attn_scalar"] == scalar
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        assert ours[key] == getattr(theirs, key, None)


@pytest.mark.parametrize("raw", SPARSE.values(), ids=SPARSE)
def test_experts_and_latents_agree_with_transformers(tmp_path: Path, raw: dict[str, Any]) -> None:
    ours, theirs = complete_config(raw, Path("config.json")), theirs_of(raw, tmp_path)
    name = "n_routed_experts" if hasattr(theirs, "n_routed_experts") else "num_experts"
    assert ours["num_experts"] == getattr(theirs, name)
    assert ours["num_experts_per_tok"] == theirs.num_experts_per_tok
    inner_size = getattr(theirs, "moe_intermediate_size", theirs.intermediate_size)
    assert ours["moe_intermediate_size"] == inner_size
    assert ours["shared_intermediate_size"] == inner_size * getattr(theirs, "n_shared_experts", 0)
    assert ours["routed_scaling_factor"] == getattr(theirs, "routed_scaling_factor", 1.0)
    assert ours["norm_topk_prob"] == getattr(theirs, "norm_topk_prob", True)
    assert ours["n_group"] == (getattr(theirs, "n_group", None) or 1)
    assert ours["topk_group"] == (getattr(theirs, "topk_group", None) or 1)
    dense = set(getattr(theirs, "mlp_only_layers", [])) | set(
        range(getattr(theirs, "first_k_dense_replace", 0))
    )
    assert ours["moe_layers"] == [n not in dense for n in range(theirs.num_hidden_layers)]
    latent = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    for key in latent if hasattr(theirs, "kv_lora_rank") else ():
        assert ours[key] == getattr(theirs, key), key
    for key in ("swiglu_alpha", "swiglu_limit"):
        assert ours[key] == getattr(theirs, key, {"swiglu_alpha": 1.0, "swiglu_limit": 0.0}[key])


def assert_same_rope(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for kind, parameters in ours.items():
        expected = theirs.get(kind, theirs)
        for name, value in parameters.items():
            if name != "truncate":
                assert value == expected[name], (kind, name)


CONTEXTS = {
    "plain": ({}, 4096),
    "linear": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 8192),
    "dynamic": ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, 16384),
    "yarn": (
        {"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 4096}},
        16384,
    ),
    "yarn, counted in": (
        {"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 2048}},
        4096,
    ),
    "llama3": (
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            }
        },
        4096,
    ),
}


@pytest.mark.parametrize(("changes", "tokens"), CONTEXTS.values(), ids=CONTEXTS)
def test_scaling_counts_into_the_context(changes: dict[str, Any], tokens: int) -> None:
    raw = {**LLAMA, "max_position_embeddings": 4096, **changes}
    assert complete_config(raw, Path("c"))["max_position_embeddings"] == tokens


def test_scaling_added_to_a_newer_file_keeps_its_base() -> None:
    added = {"type": "linear", "factor": 2.0}
    raw = {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 77777.0}}
    rope = complete_config({**raw, "rope_scaling": added}, Path("c"))["rope_parameters"]
    assert rope["full_attention"] == {"rope_type": "linear", "rope_theta": 77777.0, "factor": 2.0}


def test_a_growth_of_zero_is_none() -> None:
    yarn = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.0}
    rope = complete_config({**LLAMA, "rope_scaling": yarn}, Path("c"))["rope_parameters"]
    assert "mscale_all_dim" not in rope["full_attention"]


def test_token_ids() -> None:
    raw = {**LLAMA, "bos_token_id": 5, "eos_token_id": [7, 8]}
    config = complete_config(raw, Path("c"))
    assert (config["bos_token_id"], config["eos_token_id"]) == (5, [7, 8])
    config = complete_config(LLAMA, Path("c"))
    assert (config["bos_token_id"], config["eos_token_id"]) == (None, [])


EXPERTS = {"model_type": "deepseek_v3"}
GRANITE = {**LLAMA, "model_type": "granite", "residual_multiplier": 0.22}
CORRUPT: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"hidden_size": None}, "hidden_size is missing"),
    "text": ({"vocab_size": "1000"}, "vocab_size is '1000'"),
    "zero": ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "huge": ({"intermediate_size": 1 << 40}, "intermediate_size is 1099511627776"),
    "truth": ({"hidden_size": True}, "hidden_size is True"),
    "odd heads": ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads 3"),
    "odd head": ({"head_dim": 7}, "head_dim is 7; it must be even"),
    "tiny head": ({"head_dim": 2}, "head_dim is 2; it must be even and at least 4"),
    "eps": ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
    "eps kind": ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
    "flag": ({"attention_bias": 1}, "attention_bias is 1"),
    "eos": ({"eos_token_id": 1000}, "eos_token_id is 1000; the vocabulary has 1000"),
    "rope": ({"rope_scaling": {"type": "linear"}}, "factor is None"),
    "rope kind": ({"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
    "theta of one": ({"rope_theta": 1.0}, "rope_theta is 1.0; it must exceed 1"),
    "llama3 bounds": (
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            }
        },
        "high_freq_factor must exceed",
    ),
    "theta": ({"rope_theta": float("inf")}, "rope_theta is inf"),
    "more than all": ({**EXPERTS, "num_experts_per_tok": 257}, "num_experts_per_tok is 257"),
    "more than groups": ({**EXPERTS, "topk_group": 1, "num_experts_per_tok": 33}, "do not give 33"),
    "uneven groups": ({**EXPERTS, "n_group": 7}, "256 experts in 7 groups"),
    "no latent": ({**EXPERTS, "kv_lora_rank": 0}, "kv_lora_rank is 0"),
    "dense layers": ({**EXPERTS, "first_k_dense_replace": "one"}, "first_k_dense_replace a number"),
}


@pytest.mark.parametrize(("changes", "what"), CORRUPT.values(), ids=CORRUPT)
def test_a_value_that_cannot_be(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=rf"^config\.json: .*{what}"):
        complete_config({**LLAMA, **changes}, Path("config.json"))


def test_numbers_that_only_one_model_has_are_checked() -> None:
    config = complete_config(GRANITE, Path("config.json"))
    assert config["residual_multiplier"] == 0.22
    assert config["logits_scaling"] == 1.0
    assert "logits_scaling" not in complete_config(LLAMA, Path("config.json"))
    with pytest.raises(CheckpointCorrupt, match="residual_multiplier is 'much'"):
        complete_config({**GRANITE, "residual_multiplier": "much"}, Path("config.json"))


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"model_type": "mamba"}, "'mamba' is not supported; supported are llama, mistral"),
    "no type": ({"model_type": None}, "no model_type is given; supported are llama"),
    "activation": ({"hidden_act": "relu"}, "hidden_act is 'relu'; only 'silu'"),
    "rope": ({"rope_scaling": {"type": "longrope"}}, "'longrope' is not supported"),
    "partial": ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    "partial, at the top": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "both ways": ({"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    "not causal": ({"is_causal": False}, "is_causal is False: a token sees those after it"),
    "layers": ({"layer_types": ["linear_attention"] * 3}, "layer_types must be 3 times"),
    "scoring": ({**EXPERTS, "scoring_func": "tanh"}, "scoring_func is 'tanh'"),
    "method": ({**EXPERTS, "topk_method": "best"}, "topk_method is 'best'"),
    "frequency": ({**EXPERTS, "moe_layer_freq": 2}, "moe_layer_freq is 2; only 1"),
}


@pytest.mark.parametrize(("changes", "what"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_value_that_we_do_not_have(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=rf"^config\.json: .*{what}"):
        complete_config({**LLAMA, **changes}, Path("config.json"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(ROPE_KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=600, deadline=None)
@given(
    base=st.sampled_from(list(FILES.values())),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON_VALUES, max_size=4),
)
def test_any_json_is_a_configuration_or_a_typed_error(
    base: dict[str, Any], changes: dict[str, Any]
) -> None:
    try:
        config = complete_config({**base, **changes}, Path("config.json"))
    except CheckpointError as error:
        assert error.message.startswith("config.json: ")  # noqa: PT017
    else:
        assert config["head_dim"] % 2 == 0
        assert len(config["layer_types"]) == config["num_hidden_layers"]
