# SPDX-License-Identifier: Apache-2.0
"""Teacher-forced logits of a model with dummy weights over ranks, a process and a device each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.checkpoint import open_checkpoint
from tokenlight.kv import DevicePool
from tokenlight.models import cache_specs, compile_model, load_model, shard_model
from tokenlight.nn import Step
from tokenlight.runner.ranks.communicator import TorchCommunicator
from tokenlight.runner.ranks.devices import backend_of, take_device
from tokenlight.spmd import Limits, Mesh, Ranks, Widths

ANSWER_S = 600
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Lesson:
    """What each rank does."""

    folder: Path
    """With a configuration and no weights."""
    device: str
    dtype: torch.dtype
    token_ids: Sequence[int]
    num_prefilled: int
    """So many at once; the rest follow one by one."""


def teach(lesson: Lesson, num_ranks: int, meeting: Path) -> list[NDArray[np.float32]]:
    """Logits of every token, [T, V], from each rank."""
    context = get_context("spawn")
    pipes, processes = [], []
    for rank in range(num_ranks):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, lesson, rank, num_ranks, meeting), daemon=True
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    told = []
    for pipe, process in zip(pipes, processes, strict=True):
        told.append(pipe.recv() if pipe.poll(ANSWER_S) else TimeoutError())
        pipe.close()
        process.join(20)
    for answer in told:
        if isinstance(answer, Exception):
            raise answer
    return told


def _serve(pipe: Connection, lesson: Lesson, rank: int, num_ranks: int, meeting: Path) -> None:
    torch.set_num_threads(1)
    try:
        take_device(lesson.device, rank, torch.cuda.device_count())
        dist.init_process_group(
            backend_of(lesson.device),
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=num_ranks,
        )
        answer: object = _logits(lesson, rank, num_ranks).cpu().numpy()
    except Exception as fault:  # for the test to raise
        answer = fault
    pipe.send(answer)
    pipe.close()
    if lesson.device == "cpu":
        if dist.is_initialized():
            dist.destroy_process_group()
    else:
        os._exit(0)  # as ranks on GPUs do


@torch.inference_mode()
def _logits(lesson: Lesson, rank: int, num_ranks: int) -> Tensor:
    checkpoint = open_checkpoint(lesson.folder, has_weights=False)
    widths = Widths(num_ranks=num_ranks, attn_tp=num_ranks, dense_tp=num_ranks, moe_tp=num_ranks)
    mesh = Mesh.of(widths).at(rank)
    sharding = shard_model(checkpoint, mesh, lesson.dtype)
    model = load_model(
        checkpoint, device=lesson.device, dtype=lesson.dtype, is_dummy=True, sharding=sharding
    )
    num_blocks = -(-len(lesson.token_ids) // BLOCK_TOKENS)
    pool = DevicePool(
        cache_specs(checkpoint, mesh),
        num_blocks=num_blocks,
        block_tokens=BLOCK_TOKENS,
        dtype=lesson.dtype,
        device=lesson.device,
    )
    compiled = compile_model(
        model,
        pool,
        device=lesson.device,
        limits=Limits(T=len(lesson.token_ids), S=len(lesson.token_ids)),
        ranks=Ranks(mesh, sharding.layouts, TorchCommunicator(lesson.device)),
    )
    ends = [lesson.num_prefilled, *range(lesson.num_prefilled + 1, len(lesson.token_ids) + 1)]
    return torch.cat(
        [
            compiled(_step(lesson, pool, start, end)).clone()
            for start, end in zip([0, *ends], ends, strict=False)
        ]
    )


def _step(lesson: Lesson, pool: DevicePool, start: int, end: int) -> Step:
    def integers(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=lesson.device)

    num_blocks = pool.layer(0)[0].shape[0]
    return Step(
        token_ids_T=integers(lesson.token_ids[start:end]),
        positions_T=integers(range(start, end)),
        query_starts=integers([0, end - start]),
        kv_lens=integers([end]),
        slots=integers([0]),
        block_table=integers(range(num_blocks)).view(1, -1),
        sampled_rows=integers(range(end - start)),
        kv=pool,
    )
