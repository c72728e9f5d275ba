# SPDX-License-Identifier: Apache-2.0
"""Both ways to reach other ranks give each collective's result: on CPUs, that of GPUs over gloo."""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tokenlight.runner.ranks.communicator import TorchCommunicator

GROUP = (0, 1)
NUM_EXPERTS = 4
# Below and above what is gathered whole, of float32 [T, 1024].
ROWS = (0, 1, 6, 256)
ANSWER_S = 100


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(150)
@pytest.mark.parametrize("device", ["cpu", "cuda", "captured"])
def test_collectives_give_what_their_contracts_say(tmp_path: Path, device: str):
    context = get_context("spawn")
    pipes, processes = [], []
    for rank in GROUP:
        ours, theirs = context.Pipe()
        args = (theirs, device, rank, tmp_path / "meeting")
        processes.append(context.Process(target=serve, args=args, daemon=True))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    for pipe, process in zip(pipes, processes, strict=True):
        fault = pipe.recv() if pipe.poll(ANSWER_S) else TimeoutError()
        pipe.close()
        process.join(20)
        process.close()
        if fault is not None:
            raise fault


def serve(pipe: Connection, device: str, rank: int, meeting: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        communicator = TorchCommunicator("cpu" if device == "cpu" else "cuda")
        communicator._is_capturing = lambda: device == "captured"
        for num_rows in ROWS:
            check_moves(communicator, rank, num_rows)
        check_routes(communicator, rank)
        fault = None
    except Exception as raised:  # for the test to raise
        fault = raised
    pipe.send(fault)
    dist.destroy_process_group()


def numbers(rank: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank))


def equal(ours: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(ours, wanted, rtol=0, atol=0)


@torch.inference_mode()
def check_moves(comm: TorchCommunicator, rank: int, num_rows: int) -> None:
    one, other = (numbers(each, num_rows, 1024) for each in GROUP)
    x, total = (one, other)[rank], one + other
    equal(comm.all_reduce(x, group=GROUP), total)
    equal(comm.all_gather(x, group=GROUP, dim=0), torch.cat([one, other]))
    equal(comm.all_gather(x, group=GROUP, dim=1), torch.cat([one, other], 1))
    equal(comm.gather_shares(x, group=GROUP), torch.cat([one, other], 1))
    equal(comm.reduce_scatter(x, group=GROUP, dim=1), total.chunk(2, 1)[rank])
    if num_rows % 2 == 0 and num_rows:
        moved = comm.all_to_all(x, group=GROUP, split_dim=0, join_dim=1)
        equal(moved, torch.cat([each.chunk(2)[rank] for each in (one, other)], 1))


@torch.inference_mode()
def check_routes(comm: TorchCommunicator, rank: int) -> None:
    num_tokens = 33
    xs = [numbers(each, num_tokens, 256) for each in GROUP]
    routes = [numbers(each, num_tokens, 2 * NUM_EXPERTS).topk(2)[1].int() for each in GROUP]
    weights = [numbers(each, num_tokens, 2) for each in GROUP]
    options = {"group": GROUP, "num_experts": NUM_EXPERTS}
    x_UD, experts, told = comm.gather_routed(xs[rank], routes[rank], weights[rank], **options)
    equal(experts, torch.cat(routes))
    equal(told, torch.cat(weights))
    is_here = (experts // NUM_EXPERTS == rank).any(1)
    equal(x_UD, torch.cat(xs) * is_here[:, None])
    answers = [numbers(2 + each, 2 * num_tokens, 256) for each in GROUP]
    wanted = sum(
        answers[each].chunk(2)[rank] * (routes[rank] // NUM_EXPERTS == each).any(1)[:, None]
        for each in GROUP
    )
    equal(comm.scatter_routed(answers[rank], experts, **options), torch.as_tensor(wanted))
