# SPDX-License-Identifier: Apache-2.0
"""The rotary part of a configuration, in one spelling: parameters by layer type.

Older files have rope_theta and rope_scaling at the top (with `type` for `rope_type`), newer ones
rope_parameters, which is one set or one per layer type. Where somebody added a rope_scaling to a
newer file, as model cards advise for long contexts, it replaces all but the base.
"""

from collections.abc import Mapping, Sequence
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
    kinds = sorted({*layer_types, "full_attention"})
    return {kind: _checked(_given(source, kind, path), kind, source, path) for kind in kinds}


def _given(source: Mapping[str, Any], kind: str, path: Path) -> Mapping[str, Any]:
    """What the file says of one kind of layers."""
    given = _object(source, "rope_parameters", path)
    is_by_kind = any(each in given for each in ("full_attention", "sliding_attention"))
    if is_by_kind:
        given = _object(given, kind, path)
    if kind != "full_attention":
        if is_by_kind:
            return given
        # A local base means that sliding layers have their own, unscaled rotation.
        if "rope_local_base_freq" in source:
            return {}
    scaling = _object(source, "rope_scaling", path)
    if not scaling:
        return given
    return {key: given[key] for key in ("rope_theta",) if key in given} | dict(scaling)


def is_positive_number(value: object) -> bool:
    """Whether it can be a size, a factor or a small constant; JSON also has 1e999 and NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e18


def _object(source: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    found = source.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise CheckpointCorrupt(f"{path}: {key} is {found!r}; it must be an object")
    return found


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
    if not isinstance(rope_type, str) or rope_type not in ROPE_TYPES:
        supported = ", ".join(name for name in ROPE_TYPES if name != "factors")
        raise UnsupportedCheckpoint(
            f"{path}: the rope type {rope_type!r} is not supported; supported are {supported}"
        )
    partial = given.get("partial_rotary_factor", source.get("partial_rotary_factor"))
    if partial not in (None, 1.0):
        raise UnsupportedCheckpoint(f"{path}: partial_rotary_factor is not supported")
    numbers = _numbers(rope_type, given, kind, source)
    _check_numbers(rope_type, numbers, path)
    if rope_type == "yarn":
        numbers["truncate"] = bool(given.get("truncate", True))
    return {"rope_type": rope_type, **numbers}


def _numbers(
    rope_type: str, given: Mapping[str, Any], kind: str, source: Mapping[str, Any]
) -> dict[str, Any]:
    top_theta = source.get("rope_theta")
    if kind == "sliding_attention":
        top_theta = source.get("rope_local_base_freq", top_theta)
    numbers = {
        "rope_theta": given.get("rope_theta", DEFAULT_THETA if top_theta is None else top_theta)
    }
    fallback = {"original_max_position_embeddings": source.get("max_position_embeddings")}
    for name in ROPE_TYPES[rope_type]:
        numbers[name] = fallback.get(name) if given.get(name) is None else given[name]
    stated = {name: given[name] for name in OPTIONAL_NUMBERS if given.get(name) is not None}
    # A zero in DeepSeek's files says that nothing grows.
    zeros = {name for name in stated if name.startswith("mscale") and stated[name] == 0}
    return numbers | {name: value for name, value in stated.items() if name not in zeros}


def _check_numbers(rope_type: str, numbers: Mapping[str, Any], path: Path) -> None:
    for name, value in numbers.items():
        if not is_positive_number(value):
            raise CheckpointCorrupt(
                f"{path}: the rope parameter {name} is {value!r}; it must be a positive number"
            )
    if numbers["rope_theta"] <= 1:
        raise CheckpointCorrupt(f"{path}: rope_theta is {numbers['rope_theta']}; it must exceed 1")
    if rope_type == "llama3" and numbers["high_freq_factor"] <= numbers["low_freq_factor"]:
        raise CheckpointCorrupt(f"{path}: high_freq_factor must exceed low_freq_factor")
