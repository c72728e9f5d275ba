# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp's converter makes of models with experts, and with latent attention."""

from collections.abc import Iterator, Mapping
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Config = Mapping[str, Any]


def converted(
    architecture: str, config: Config, state: Mapping[str, Array], *, splits_kv_b: bool
) -> Iterator[tuple[str, Array]]:
    """Tensors under the names that `gguf.TensorNameMap` knows, as they are stored."""
    for name, array in state.items():
        prefix, _, kind = name.rpartition(".")
        if prefix.endswith(".experts"):
            yield from _of_experts(architecture, f"{prefix}.", kind, array)
        elif prefix.endswith("kv_b_proj") and splits_kv_b:
            yield from _halves_of_kv_b(config, prefix, array)
        elif kind == "e_score_correction_bias":
            yield f"{prefix}.e_score_correction.bias", array
        elif kind == "sinks":
            yield f"{name}.weight", array
        else:
            yield name, array


def _of_experts(
    architecture: str, prefix: str, kind: str, array: Array
) -> Iterator[tuple[str, Array]]:
    """Gate and up are apart there; gpt-oss has them take turns, and keeps matrices [in, out]."""
    layer = kind.removesuffix("_bias")
    suffix = ".bias" if kind.endswith("_bias") else ".weight"
    if architecture == "gpt-oss" and suffix == ".weight":
        array = array.swapaxes(1, 2)
    if layer == "down_proj":
        yield prefix + layer + suffix, np.ascontiguousarray(array)
        return
    is_in_turns = architecture == "gpt-oss"
    halves = (array[:, ::2], array[:, 1::2]) if is_in_turns else tuple(np.split(array, 2, axis=1))
    for part, half in zip(("gate_proj", "up_proj"), halves, strict=True):
        yield prefix + part + suffix, np.ascontiguousarray(half)


def _halves_of_kv_b(config: Config, prefix: str, array: Array) -> Iterator[tuple[str, Array]]:
    """Per head: what makes keys, turned, and what makes values."""
    by_head = array.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
    keys, values = np.split(by_head, [config["qk_nope_head_dim"]], axis=1)
    yield (
        prefix.replace("kv_b", "k_b") + ".weight",
        np.ascontiguousarray(keys.swapaxes(1, 2)),
    )
    yield prefix.replace("kv_b", "v_b") + ".weight", np.ascontiguousarray(values)


def add_expert_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    count = next(
        (
            config[key]
            for key in ("num_experts", "n_routed_experts", "num_local_experts")
            if key in config
        ),
        None,
    )
    if count is None:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    inner_size = config.get("moe_intermediate_size", config["intermediate_size"])
    writer.add_expert_feed_forward_length(inner_size)
    if "n_routed_experts" not in config:
        return
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])


def add_latent_sizes(writer: gguf.GGUFWriter, config: Config, *, splits_kv_b: bool) -> None:
    """Keys and values are what the cache has, where the heads' projections are apart."""
    key_size = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    latent_size = config["kv_lora_rank"]
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent_size)
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    if splits_kv_b:
        writer.add_key_length(latent_size + config["qk_rope_head_dim"])
        writer.add_value_length(latent_size)
        writer.add_key_length_mla(key_size)
        writer.add_value_length_mla(config["v_head_dim"])
    else:
        writer.add_key_length(key_size)
        writer.add_value_length(config["v_head_dim"])
    growth = config["rope_parameters"].get("mscale_all_dim")
    if growth:
        writer.add_rope_scaling_yarn_log_mul(0.1 * growth)
