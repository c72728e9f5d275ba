# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file says of experts and of latent attention, in the keys of config.json."""

from collections.abc import Mapping
from typing import Any

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import TensorEntry
from tokenlight.checkpoint.metadata import Metadata

# config.json's key -> the metadata's, after "<architecture>."
SIZES = {
    "qwen3moe": {
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
    },
    "deepseek2": {
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "n_shared_experts": "expert_shared_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "first_k_dense_replace": "leading_dense_block_count",
        "n_group": "expert_group_count",
        "topk_group": "expert_group_used_count",
        "kv_lora_rank": "attention.kv_lora_rank",
        "q_lora_rank": "attention.q_lora_rank",
        "qk_rope_head_dim": "rope.dimension_count",
    },
    "gpt-oss": {
        "num_local_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "intermediate_size": "expert_feed_forward_length",
    },
}
# expert_gating_func
SCORING = {1: "softmax", 2: "sigmoid"}


def expert_facts(
    prefix: str, metadata: Metadata, tensors: Mapping[str, TensorEntry]
) -> dict[str, Any]:
    """Of the architecture `prefix`; what the file does not say is left out.

    Raises:
        CheckpointCorrupt: a value is of another type.
        UnsupportedCheckpoint: the experts are scored in a way that we do not know.
    """
    facts: dict[str, Any] = {
        key: metadata.find_int(f"{prefix}.{name}") for key, name in SIZES.get(prefix, {}).items()
    }
    found = {key: value for key, value in facts.items() if value is not None}
    if prefix == "qwen3moe":
        return {**found, "norm_topk_prob": True}  # as llama.cpp has it, which the file does not say
    if prefix == "gpt-oss":
        window = metadata.get_int(f"{prefix}.attention.sliding_window")
        return {**found, "sliding_window": window, "experts_stored": "separate"}
    if prefix == "deepseek2":
        return found | _deepseek(metadata, tensors)
    return {}


def _deepseek(metadata: Metadata, tensors: Mapping[str, TensorEntry]) -> dict[str, Any]:
    prefix = "deepseek2"
    gating = metadata.find_int(f"{prefix}.expert_gating_func") or 1
    if gating not in SCORING:
        raise UnsupportedCheckpoint(
            f"{metadata.path}: {prefix}.expert_gating_func is {gating}; known are 1 (softmax) and "
            f"2 (sigmoid)"
        )
    rotated = metadata.get_int(f"{prefix}.rope.dimension_count")
    # Files that keep kv_b as one tensor give the sizes of keys and values under the older names.
    key_size = metadata.find_int(f"{prefix}.attention.key_length_mla")
    value_size = metadata.find_int(f"{prefix}.attention.value_length_mla")
    if key_size is None or value_size is None:
        key_size = metadata.get_int(f"{prefix}.attention.key_length")
        value_size = metadata.get_int(f"{prefix}.attention.value_length")
    has_bias = any(name.endswith(".exp_probs_b.bias") for name in tensors)
    is_grouped = (metadata.find_int(f"{prefix}.expert_group_count") or 1) > 1
    return {
        # The file leaves it out where queries are not compressed.
        "q_lora_rank": metadata.find_int(f"{prefix}.attention.q_lora_rank"),
        "qk_nope_head_dim": key_size - rotated,
        "v_head_dim": value_size,
        "scoring_func": SCORING[gating],
        "topk_method": "noaux_tc"
        if has_bias
        else "group_limited_greedy"
        if is_grouped
        else "greedy",
        "norm_topk_prob": metadata.find_bool(f"{prefix}.expert_weights_norm") or False,
        "routed_scaling_factor": metadata.find_float(f"{prefix}.expert_weights_scale") or 1.0,
        "has_split_kv_b": "blk.0.attn_k_b.weight" in tensors,
    }
