# SPDX-License-Identifier: Apache-2.0
"""The models: one file per `model_type` of config.json, found by its name; wiring only."""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint
from tokenlight.models.base import CausalLM, Config
from tokenlight.models.compiled import CompiledModel, compile_model
from tokenlight.nn import CacheSpec
from tokenlight.weights import Target, is_tied, load_weights
from tokenlight.weights.dummy import fill_with_dummies

__all__ = [
    "CausalLM",
    "CompiledModel",
    "Config",
    "cache_specs",
    "compile_model",
    "load_model",
    "model_types",
]


# Kin that another model's file serves as it is.
ALIASES = {"gemma3_text": "gemma3", "mistral": "llama"}


def model_types() -> list[str]:
    """Every `model_type` that has a file here, or an alias."""
    files = {module.name for module in iter_modules(__path__)} - {"base", "compiled"}
    return sorted(files | ALIASES.keys())


def load_model(
    checkpoint: Checkpoint,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    is_dummy: bool = False,
) -> CausalLM:
    """Build the checkpoint's model and fill it; weights stay as they are stored.

    Args:
        checkpoint: an opened one.
        device: where it will run.
        dtype: of activations.
        is_dummy: fill it with random numbers instead of the checkpoint's.

    Returns:
        A module whose `forward(step)` gives logits: float32 [S, V].

    Raises:
        UnsupportedCheckpoint: no file here has its `model_type`, or a tensor has no place.
        CheckpointCorrupt: its tensors do not fit its configuration.
    """
    file = _file_of(checkpoint)
    config = replace(file.Config.of(checkpoint), tie_word_embeddings=is_tied(checkpoint))
    model: CausalLM = file.Model(config)
    target = Target(torch.device(device), dtype)
    if is_dummy:
        fill_with_dummies(model, file.WEIGHT_MAP, target)
    else:
        load_weights(model, checkpoint, file.WEIGHT_MAP, target)
    model.to(target.device).eval()
    return model


def cache_specs(checkpoint: Checkpoint) -> list[CacheSpec]:
    """What each layer of the checkpoint's model keeps of a token.

    Raises:
        UnsupportedCheckpoint: no file here has its `model_type`.
    """
    specs: list[CacheSpec] = _file_of(checkpoint).Config.of(checkpoint).cache_specs
    return specs


def _file_of(checkpoint: Checkpoint) -> Any:
    if checkpoint.model_type not in model_types():
        raise UnsupportedCheckpoint(
            f"{checkpoint.path}: the model type {checkpoint.model_type!r} is not supported; "
            f"supported are {', '.join(model_types())}"
        )
    name = ALIASES.get(checkpoint.model_type, checkpoint.model_type)
    return import_module(f"{__name__}.{name}")
