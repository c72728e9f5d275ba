# SPDX-License-Identifier: Apache-2.0
"""Which device a rank has, and by what it reaches the others."""

import torch

from tokenlight.base.errors import ConfigError


def backend_of(device: str) -> str:
    """Of torch's process group, by name. What ranks are told travels between CPUs always."""
    return "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"


def device_of_launched() -> str:
    """Between what launched ranks' tensors may travel: they meet before they are told of flags."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def check_gpus(device: str, num_ranks: int, num_gpus: int) -> None:
    """Before the ranks of this host are started.

    Raises:
        ConfigError: there are fewer GPUs than ranks.
    """
    if device != "cpu" and num_ranks > num_gpus:
        raise ConfigError(
            f"{num_ranks} ranks need a GPU each, and torch sees {num_gpus}: lower "
            f"--tensor-parallel-size or --expert-parallel-size, make more visible "
            f"(CUDA_VISIBLE_DEVICES), or give --device cpu"
        )


def take_device(device: str, local_rank: int, num_gpus: int) -> torch.device:
    """From now on, on this thread, "cuda" is this rank's GPU: each of a host has one of its own.

    Args:
        device: "cpu" or "cuda".
        local_rank: the rank's number on its host.
        num_gpus: that torch sees there.

    Raises:
        ConfigError: there are fewer GPUs than ranks.
    """
    if device == "cpu":
        return torch.device("cpu")
    if local_rank >= num_gpus:
        raise ConfigError(
            f"rank {local_rank} of this host has no GPU: torch sees {num_gpus}; start as many "
            f"ranks as there are GPUs, or make more visible (CUDA_VISIBLE_DEVICES)"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
