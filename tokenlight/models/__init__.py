# SPDX-License-Identifier: Apache-2.0
"""The models: one file per `model_type` of config.json, found by its name; wiring only."""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint
from tokenlight.kernels import FORMATS, Format
from tokenlight.models.base import CausalLM, Config
from tokenlight.models.compiled import CompiledModel, compile_model
from tokenlight.models.planned import ModelPlan, plan_model
from tokenlight.models.sharding import Sharding, find_sharding
from tokenlight.nn import CacheSpec
from tokenlight.spmd import Mesh
from tokenlight.weights import Target, is_tied, load_weights, stored_formats
from tokenlight.weights.dummy import fill_with_dummies

__all__ = [
    "CausalLM",
    "CompiledModel",
    "Config",
    "ModelPlan",
    "Sharding",
    "cache_specs",
    "compile_model",
    "load_model",
    "model_types",
    "plan_model",
    "shard_model",
]


# Kin that another model's file serves as it is.
ALIASES = {
    "deepseek_v2": "deepseek_v3",
    "gemma3_text": "gemma3",
    "kimi_k2": "deepseek_v3",
    "mistral": "llama",
}


# Files that all models share.
_NO_MODELS = {"base", "compiled", "planned", "sharding"}


def model_types() -> list[str]:
    """Every `model_type` that has a file here, or an alias."""
    files = {module.name for module in iter_modules(__path__)} - _NO_MODELS
    return sorted(files | ALIASES.keys())


def load_model(
    checkpoint: Checkpoint,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    is_dummy: bool = False,
    sharding: Sharding | None = None,
) -> CausalLM:
    """Build the checkpoint's model and fill it; weights stay as they are stored.

    Args:
        checkpoint: an opened one.
        device: where it will run.
        dtype: of activations.
        is_dummy: fill it with random numbers instead of the checkpoint's.
        sharding: what this rank holds; None: everything.

    Returns:
        A module whose `forward(step)` gives logits: float32 [S, V].

    Raises:
        UnsupportedCheckpoint: no file here has its `model_type`, or a tensor has no place.
        CheckpointCorrupt: its tensors do not fit its configuration.
    """
    weight_map = _file_of(checkpoint).WEIGHT_MAP
    model = _build(checkpoint, sharding.mesh if sharding else Mesh())
    target, held = Target(torch.device(device), dtype), sharding.pieces if sharding else None
    if is_dummy:
        fill_with_dummies(model, weight_map, target, held)
    else:
        load_weights(model, checkpoint, weight_map, target, held)
    model.to(target.device).eval()
    return model


def shard_model(checkpoint: Checkpoint, mesh: Mesh, dtype: torch.dtype = torch.float32) -> Sharding:
    """What the mesh's rank holds of the checkpoint's model; reads headers only.

    Of a checkpoint without weights: as if they were bfloat16, which dummies are.

    Raises:
        ConfigError: something cannot be split evenly over the ranks.
        UnsupportedCheckpoint: as `load_model`.
        CheckpointCorrupt: likewise.
    """
    whole = _build(checkpoint, Mesh())
    formats: dict[tuple[str, int], Format] = {}
    if checkpoint.tensors:
        formats = stored_formats(whole, checkpoint, _file_of(checkpoint).WEIGHT_MAP)

    def format_of(slot: str, part: int) -> Format:
        return formats.get((slot, part), FORMATS["bf16"])

    return find_sharding(lambda mesh: _build(checkpoint, mesh), mesh, format_of, dtype)


def _build(checkpoint: Checkpoint, mesh: Mesh) -> CausalLM:
    file = _file_of(checkpoint)
    config = file.Config.of(checkpoint)
    model: CausalLM = file.Model(
        replace(config, tie_word_embeddings=is_tied(checkpoint), mesh=mesh)
    )
    return model


def cache_specs(checkpoint: Checkpoint, mesh: Mesh | None = None) -> list[CacheSpec]:
    """What each layer of the checkpoint's model keeps of a token, on the mesh's rank.

    Raises:
        UnsupportedCheckpoint: no file here has its `model_type`.
    """
    config = _file_of(checkpoint).Config.of(checkpoint)
    specs: list[CacheSpec] = replace(config, mesh=mesh or Mesh()).cache_specs
    return specs


def _file_of(checkpoint: Checkpoint) -> Any:
    if checkpoint.model_type not in model_types():
        raise UnsupportedCheckpoint(
            f"{checkpoint.path}: the model type {checkpoint.model_type!r} is not supported; "
            f"supported are {', '.join(model_types())}"
        )
    name = ALIASES.get(checkpoint.model_type, checkpoint.model_type)
    return import_module(f"{__name__}.{name}")
