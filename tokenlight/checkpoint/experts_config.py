# SPDX-License-Identifier: Apache-2.0
"""The part of a configuration that is about experts, in one spelling.

num_experts, num_experts_per_tok, moe_intermediate_size, shared_intermediate_size (0: none),
moe_layers (whether each layer has experts), scoring_func ("softmax", "sigmoid"), n_group,
topk_group, group_best (how many experts make a group's score), has_correction_bias,
norm_topk_prob, routed_scaling_factor, swiglu_alpha, swiglu_limit (0: none),
num_nextn_predict_layers (layers after the last that draft further tokens), and experts_stored:
"separate" (gate, up and down), or as gpt-oss keeps them: "mxfp4", "transposed".
"""

from collections.abc import Mapping
from typing import Any

from tokenlight.checkpoint.checked_keys import CheckedKeys

_NAMES = ("n_routed_experts", "num_local_experts", "num_experts")
MAX_EXPERTS = 1 << 16


def has_experts(defaults: Mapping[str, Any]) -> bool:
    """Whether a model type has these keys: its row of defaults says so, not the file."""
    return any(name in defaults for name in _NAMES)


def expert_keys(asked: CheckedKeys, num_layers: int) -> dict[str, Any]:
    """The keys above.

    Raises:
        CheckpointCorrupt: a value is missing or cannot be.
        UnsupportedCheckpoint: a value is one that we do not implement.
    """
    source = asked.source
    is_gpt_oss = source["model_type"] == "gpt_oss"
    num_experts = asked.size(next(name for name in _NAMES if name in source), limit=MAX_EXPERTS)
    inner_size = asked.size("intermediate_size" if is_gpt_oss else "moe_intermediate_size")
    num_shared = asked.size("n_shared_experts") if source.get("n_shared_experts") else 0
    drafting = "num_nextn_predict_layers"
    num_drafting = asked.size(drafting) if source.get(drafting) else 0
    return {
        "num_experts": num_experts,
        "num_experts_per_tok": asked.size("num_experts_per_tok", limit=num_experts),
        "moe_intermediate_size": inner_size,
        "shared_intermediate_size": num_shared * inner_size,
        "moe_layers": _moe_layers(asked, num_layers),
        **_routing(asked, num_experts),
        "norm_topk_prob": bool(source.get("norm_topk_prob")),
        "routed_scaling_factor": asked.positive("routed_scaling_factor", 1.0),
        "swiglu_alpha": asked.positive("swiglu_alpha", 1.0),
        "swiglu_limit": asked.positive("swiglu_limit") if is_gpt_oss else 0.0,
        "num_nextn_predict_layers": num_drafting,
        "experts_stored": _stored(asked),
    }


def _moe_layers(asked: CheckedKeys, num_layers: int) -> list[bool]:
    source = asked.source
    if source.get("moe_layer_freq", 1) != 1:
        raise asked.unsupported(
            f"moe_layer_freq is {source['moe_layer_freq']}; only 1 is supported"
        )
    every = asked.size("decoder_sparse_step", 1)
    dense = source.get("mlp_only_layers") or []
    first = source.get("first_k_dense_replace") or 0
    if not isinstance(dense, list) or type(first) is not int:
        raise asked.corrupt("mlp_only_layers must be a list and first_k_dense_replace a number")
    return [
        layer >= first and layer not in dense and (layer + 1) % every == 0
        for layer in range(num_layers)
    ]


def _routing(asked: CheckedKeys, num_experts: int) -> dict[str, Any]:
    source = asked.source
    scoring = source.get("scoring_func", "softmax")
    method = source.get("topk_method", "greedy")
    if scoring not in ("softmax", "sigmoid"):
        raise asked.unsupported(f"scoring_func is {scoring!r}; known are softmax and sigmoid")
    if method not in ("greedy", "group_limited_greedy", "noaux_tc"):
        raise asked.unsupported(
            f"topk_method is {method!r}; known are greedy, group_limited_greedy and noaux_tc"
        )
    has_bias = method == "noaux_tc"
    num_groups, top_groups = 1, 1
    if method != "greedy":
        num_groups = asked.size("n_group", 1, limit=num_experts)
        top_groups = asked.size("topk_group", 1, limit=num_groups)
    group_best = 2 if has_bias and num_groups > 1 else 1
    per_group = num_experts // num_groups
    if num_experts % num_groups or asked.size("num_experts_per_tok") > per_group * top_groups:
        raise asked.corrupt(
            f"{num_experts} experts in {num_groups} groups, {top_groups} of them chosen, do not "
            f"give {source['num_experts_per_tok']} experts per token"
        )
    return {
        "scoring_func": scoring,
        "n_group": num_groups,
        "topk_group": top_groups,
        "group_best": min(group_best, per_group),
        "has_correction_bias": has_bias,
    }


def _stored(asked: CheckedKeys) -> str:
    source = asked.source
    if source["model_type"] != "gpt_oss" or source.get("experts_stored") == "separate":
        return "separate"
    quantization = source.get("quantization_config")
    is_mxfp4 = isinstance(quantization, Mapping) and quantization.get("quant_method") == "mxfp4"
    return "mxfp4" if is_mxfp4 else "transposed"
