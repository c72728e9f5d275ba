# SPDX-License-Identifier: Apache-2.0
"""What one rank holds: its part of the weights, its KV pool, and the way to the other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from tokenlight import kernels
from tokenlight.base.env import read_env
from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.config import EngineConfig
from tokenlight.kv import DevicePool
from tokenlight.models import CausalLM, CompiledModel, load_model, shard_model
from tokenlight.runner.machine import Machine, read_machine
from tokenlight.runner.memory import (
    LARGEST_STEPS,
    SERVING,
    WEIGHTS,
    compile_for,
    make_pool,
    measure_usage,
    told_when_out_of_memory,
    weights_bytes,
)
from tokenlight.runner.ranks.communicator import TorchCommunicator
from tokenlight.runner.ranks.devices import backend_of, take_device
from tokenlight.runner.ranks.mesh import mesh_of
from tokenlight.runner.resolve import (
    Limits,
    ResolvedConfig,
    model_shape,
    resolve,
    resolve_limits,
    with_blocks,
)
from tokenlight.runner.timeline import Timeline
from tokenlight.spmd import Mesh, Ranks

_HOST = "127.0.0.1"
_JOIN_TIMEOUT = timedelta(minutes=10)
# Of a broadcast as well, and a rank waits in one for as long as nobody asks the model anything.
_IDLE_TIMEOUT = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Share:
    """Ready to run."""

    model: CompiledModel
    kv: DevicePool
    config: ResolvedConfig
    held_bytes: int
    """Of weights."""


def make_store(num_ranks: int) -> TCPStore:
    """Where the ranks of this host find each other; lives in the leading rank."""
    return TCPStore(_HOST, 0, num_ranks, is_master=True, wait_for_workers=False)


class Seat(NamedTuple):
    """One of the ranks of this host, and where they find each other."""

    store: Store
    rank: int
    world_size: int


def take_seat(config: EngineConfig, *, rank: int, store_port: int) -> Seat:
    """Of a rank that follows: the leading one has the store."""
    num_ranks = config.parallel.num_ranks
    return Seat(TCPStore(_HOST, store_port, num_ranks, timeout=_JOIN_TIMEOUT), rank, num_ranks)


@contextmanager
def join(seat: Seat | None, device: str) -> Iterator[None]:
    """Be one of the ranks.

    Args:
        seat: None: a launcher's environment variables say which.
        device: "cpu" or "cuda": between what the ranks' tensors travel.
    """
    who = {} if seat is None else seat._asdict()
    dist.init_process_group(backend_of(device), timeout=_IDLE_TIMEOUT, **who)
    try:
        yield
    finally:
        # NCCL waits for the graphs that its calls were captured in, and for other ranks, which may
        # be gone. A process that had a GPU ends at once instead: see base/leave.py.
        if device == "cpu":
            dist.destroy_process_group()


def load_share(
    checkpoint: Checkpoint, config: EngineConfig, *, rank: int, timeline: Timeline
) -> Share:
    """Read this rank's part of the checkpoint, agree with the others on a size, compile it.

    Raises:
        ConfigError: what was asked cannot be had on this machine.
        CheckpointError: the model's files cannot be used.
    """
    mesh, machine = mesh_of(config).at(rank), read_machine()
    shape = model_shape(checkpoint, mesh)
    limits = resolve_limits(config, shape, machine)
    if mesh.num_ranks > 1:
        asked = read_env().local_rank
        take_device(limits.device, rank if asked is None else asked, machine.num_gpus)
    kernels.set_num_threads(threads_of_a_rank(config, machine))
    # What torch itself still does is small; its threads would spin on the kernels' cores.
    torch.set_num_threads(1)
    if config.row_invariance == "on":
        _choose_alike_everywhere()
    kernels.compile_ahead(limits.device)
    with told_when_out_of_memory(WEIGHTS), timeline.during("weights"):
        loaded, ranks = _load_part(checkpoint, config, limits, mesh)
    held_bytes = weights_bytes(loaded)
    spare_bytes = None
    if limits.device != "cpu":
        with (
            told_when_out_of_memory(LARGEST_STEPS, {"weights": held_bytes}),
            timeline.during("trial"),
        ):
            num_groups = config.parallel.dp
            usage = measure_usage(loaded, shape, limits, ranks, num_groups=num_groups)
        spare_bytes = usage.spare_bytes(config.cache.memory_fraction, limits.block_bytes)
    resolved = resolve(config, shape, machine, spare_bytes)
    if ranks is not None:
        resolved = with_blocks(resolved, _least(resolved.num_blocks))
    with told_when_out_of_memory(SERVING, {"weights": held_bytes}):
        pool = make_pool(shape.layers, limits, resolved.num_blocks)
        with timeline.during("program"):
            compiled = compile_for(
                loaded, pool, limits, ranks, activation_bits=config.activation_bits
            )
    return Share(compiled, pool, resolved, held_bytes)


def _least(num_blocks: int) -> int:
    """Of what the ranks have room for: their blocks have the same numbers."""
    told = torch.tensor([num_blocks])
    dist.all_reduce(told, op=dist.ReduceOp.MIN)
    return int(told)


def _choose_alike_everywhere() -> None:
    """No kernel whose sums depend on a row's company, and none because it was faster here."""
    kernels.ignore_tuning()
    kernels.withdraw_row_dependent()


def threads_of_a_rank(config: EngineConfig, machine: Machine) -> int:
    """The ranks of a host share its cores."""
    num_ranks = machine.num_local_ranks or config.parallel.num_ranks
    return config.num_threads or max(1, machine.num_cores // num_ranks)


def _load_part(
    checkpoint: Checkpoint, config: EngineConfig, limits: Limits, mesh: Mesh
) -> tuple[CausalLM, Ranks | None]:
    """The model of a rank, and what the compiler must know of the others; None: it is alone."""
    sharding = shard_model(checkpoint, mesh, limits.dtype) if mesh.num_ranks > 1 else None
    model = load_model(
        checkpoint,
        device=limits.device,
        dtype=limits.dtype,
        is_dummy=config.model.load_format == "dummy",
        sharding=sharding,
    )
    return model, Ranks(
        mesh, sharding.layouts, TorchCommunicator(limits.device)
    ) if sharding else None


def open_model(config: EngineConfig) -> Checkpoint:
    """The files that the model is made of."""
    has_weights = config.model.load_format != "dummy"
    return open_checkpoint(
        Path(config.model.model), has_weights=has_weights, tokenizer=config.model.tokenizer
    )
