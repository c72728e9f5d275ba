# SPDX-License-Identifier: Apache-2.0
"""The rotary part of a configuration, in one spelling: parameters by layer type.

Older files have rope_theta and rope_scaling at the top (with `type` for `rope_type`), newer ones
rope_parameters, which is one set or one per layer type.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint

DEFAULT_THETA = 10_000.0

# rope_type -> the numbers it cannot do without
ROPE_TYPES: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": (
        "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
    ),
    # Ours, for GGUF: the factors are a tensor of the file.
    "factors": (),
}  # fmt: skip
OPTIONAL_NUMBERS = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def rope_parameters_of(
    source: Mapping[str, Any], layer_types: Sequence[str], path: Path
) -> dict[str, dict[str, Any]]:
    """Rope parameters by layer type; each has rope_type, rope_theta and its type's numbers.

    Raises:
        CheckpointCorrupt: a number is missing or cannot be.
        UnsupportedCheckpoint: the rope type is none of ours.
    """
    nested = source.get("rope_parameters") or {}
    if not isinstance(nested, Mapping):
        raise CheckpointCorrupt(f"{path}: rope_parameters is {nested!r}; it must be an object")
    kinds = sorted({*layer_types, "full_attention"})
    if any(kind in nested for kind in ("full_attention", "sliding_attention")):
        return {kind: _checked(nested.get(kind) or {}, kind, source, path) for kind in kinds}
    shared = nested or source.get("rope_scaling") or {}
    if not isinstance(shared, Mapping):
        raise CheckpointCorrupt(f"{path}: rope_scaling is {shared!r}; it must be an object")
    # A local base means that sliding layers have their own, unscaled rotation.
    has_local = "rope_local_base_freq" in source
    return {
        kind: _checked({} if has_local and kind != "full_attention" else shared, kind, source, path)
        for kind in kinds
    }


def rope_context_tokens(model_type: str, tokens: int, parameters: Mapping[str, Any]) -> int:
    """The context that scaling leads to, where max_position_embeddings is the one before it."""
    kind = parameters["rope_type"]
    if kind == "yarn":
        scaled = int(parameters["original_max_position_embeddings"] * parameters["factor"])
        return max(tokens, scaled)
    # Gemma 3 files state the scaled context.
    if kind in ("linear", "dynamic") and not model_type.startswith("gemma3"):
        return int(tokens * parameters["factor"])
    return tokens


def _checked(
    given: Mapping[str, Any], kind: str, source: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    rope_type = given.get("rope_type", given.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        supported = ", ".join(name for name in ROPE_TYPES if name != "factors")
        raise UnsupportedCheckpoint(
            f"{path}: the rope type {rope_type!r} is not supported; supported are {supported}"
        )
    top_theta = source.get("rope_theta")
    if kind == "sliding_attention":
        top_theta = source.get("rope_local_base_freq", top_theta)
    values: dict[str, Any] = {
        "rope_theta": given.get("rope_theta", DEFAULT_THETA if top_theta is None else top_theta)
    }
    fallback = {"original_max_position_embeddings": source.get("max_position_embeddings")}
    for name in ROPE_TYPES[rope_type]:
        values[name] = fallback.get(name) if given.get(name) is None else given[name]
    for name in OPTIONAL_NUMBERS:
        if given.get(name) is not None:
            values[name] = given[name]
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or value <= 0:
            raise CheckpointCorrupt(
                f"{path}: the rope parameter {name} is {value!r}; it must be a positive number"
            )
    if given.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedCheckpoint(f"{path}: partial_rotary_factor is not supported")
    if rope_type == "yarn":
        values["truncate"] = bool(given.get("truncate", True))
    return {"rope_type": rope_type, **values}
