# SPDX-License-Identifier: Apache-2.0
"""The models: one file per `model_type` of config.json, found by its name; wiring only."""

from importlib import import_module
from pkgutil import iter_modules

import torch
from torch import nn

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint
from tokenlight.models.base import Config
from tokenlight.weights import Target, load_weights

__all__ = ["Config", "load_model", "model_types"]


def model_types() -> list[str]:
    """Every `model_type` that has a file here."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "base")


def load_model(
    checkpoint: Checkpoint,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Build the checkpoint's model and fill it; weights stay as they are stored.

    Args:
        checkpoint: an opened one.
        device: where it will run.
        dtype: of activations.

    Returns:
        A module whose `forward(step)` gives logits: float32 [S, V].

    Raises:
        UnsupportedCheckpoint: no file here has its `model_type`, or a tensor has no place.
        CheckpointCorrupt: its tensors do not fit its configuration.
    """
    if checkpoint.model_type not in model_types():
        raise UnsupportedCheckpoint(
            f"{checkpoint.path}: the model type {checkpoint.model_type!r} is not supported; "
            f"supported are {', '.join(model_types())}"
        )
    file = import_module(f"{__name__}.{checkpoint.model_type}")
    model: nn.Module = file.Model(Config.of(checkpoint))
    target = Target(torch.device(device), dtype)
    load_weights(model, checkpoint, file.WEIGHT_MAP, target)
    return model.to(target.device).eval()
