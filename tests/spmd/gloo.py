# SPDX-License-Identifier: Apache-2.0
"""Processes that stay, each a rank over gloo: they are sent a checkpoint and a mesh, and run it."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tests.models.rig import Rig
from tokenlight.checkpoint import open_checkpoint
from tokenlight.runner.ranks.communicator import TorchCommunicator
from tokenlight.spmd import Mesh, Widths

ANSWER_S = 180
# All that meshes of two and four ranks have.
GROUPS = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3))
Answers = dict[str, NDArray[np.float32]]


class Ranks:
    """So many processes."""

    def __init__(self, num_ranks: int, folder: Path) -> None:
        context = get_context("spawn")
        self._pipes = []
        self._processes = []
        for rank in range(num_ranks):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, rank, num_ranks, folder / "meeting"), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(
        self, checkpoint: Path, widths: Widths, prompts: Sequence[tuple[list[int], list[int]]]
    ) -> list[Answers]:
        """What each rank of the mesh gives; ranks with other tokens have other prompts."""
        pipes = self._pipes[: widths.num_ranks]
        for rank, pipe in enumerate(pipes):
            pipe.send((checkpoint, widths, *prompts[rank // widths.attn_tp]))
        answers = [pipe.recv() if pipe.poll(ANSWER_S) else TimeoutError() for pipe in pipes]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(20)


def serve(pipe: Connection, rank: int, num_ranks: int, meeting: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=num_ranks
    )
    communicator = TorchCommunicator()
    # Ahead, by all: torch names a group by how many a rank is in, and meshes leave ranks out.
    communicator._groups = {group: dist.new_group(list(group)) for group in GROUPS}
    while (asked := pipe.recv()) is not None:
        path, widths, first, second = asked
        mesh = Mesh.of(widths).at(rank)
        try:
            rig = Rig(open_checkpoint(path), mesh, communicator)
            answer: object = {n: x.numpy() for n, x in answers(rig, first, second).items()}
        except Exception as fault:  # for the test to raise
            answer = fault
        pipe.send(answer)
    dist.destroy_process_group()


def answers(rig: Rig, first: list[int], second: list[int]) -> dict[str, Tensor]:
    """Logits of both prompts, computed in the ways in which an engine does."""
    prefilled = _step(rig, {0: first[:20]})[0]
    decoded, begun = _step(rig, {0: first[20:21], 1: second[:13]})
    rig.share(0, 2, num_blocks=2)
    hit, ended = _step(rig, {2: first[8:], 1: second[13:]})
    rig.restart(0)
    again = [_step(rig, {0: first[:7]})[0], _step(rig, {0: first[7:]})[0]]
    return {
        "prefill, then decode": torch.cat([prefilled, decoded]),
        "mixed with a decode": torch.cat([begun, ended]),
        "after a prefix hit": hit,
        "preempted and computed again": torch.cat(again),
    }


def _step(rig: Rig, tokens: dict[int, list[int]]) -> list[Tensor]:
    return [rows.clone() for rows in rig.step(tokens)]
