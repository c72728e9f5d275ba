# SPDX-License-Identifier: Apache-2.0
"""Each rank of a host has a device of its own, and what ranks cannot do is refused."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from tests.models.tiny import write_tiny_llama
from tokenlight.base.env import read_env
from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.config import EngineConfig, ParallelConfig
from tokenlight.runner.machine import Machine
from tokenlight.runner.ranks import others
from tokenlight.runner.ranks.devices import backend_of, take_device
from tokenlight.runner.ranks.others import find_ranks
from tokenlight.runner.ranks.share import join, threads_of_a_rank


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What torch was told, where there is no GPU."""
    told: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", told.append)
    return told


def test_the_ranks_of_a_host_take_its_gpus_in_order(chosen: list[int]):
    taken = [take_device("cuda", rank, num_gpus=2) for rank in (0, 1)]
    assert taken == [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert chosen == [0, 1]


def test_a_rank_without_a_gpu_is_told_what_to_do(chosen: list[int]):
    with pytest.raises(ConfigError, match=r"rank 2 of this host has no GPU: torch sees 2;.*more"):
        take_device("cuda", 2, num_gpus=2)
    assert chosen == []


def test_ranks_on_cpus_take_nothing(chosen: list[int]):
    assert take_device("cpu", 5, num_gpus=0) == torch.device("cpu")
    assert chosen == []


def test_what_ranks_are_told_never_waits_for_a_gpu():
    assert backend_of("cpu") == "gloo"
    assert backend_of("cuda").split(",")[0] == "cpu:gloo"


@pytest.mark.parametrize(
    ("device", "wanted"),
    [("cpu", ["meet gloo", "leave"]), ("cuda", ["meet cpu:gloo,cuda:nccl"])],
)
def test_ranks_on_gpus_end_with_their_processes(
    device: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
):
    """NCCL would wait for captured graphs, and for ranks that may be gone."""
    told: list[str] = []
    monkeypatch.setattr(dist, "init_process_group", lambda name, **_: told.append(f"meet {name}"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: told.append("leave"))
    with join(None, device):
        assert told == wanted[:1]
    assert told == wanted


def test_a_launcher_says_which_rank_of_its_host_this_is():
    assert read_env({"WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1"}).local_rank == 1
    assert read_env({"RANK": "5"}).local_rank is None


def test_ranks_of_a_host_share_its_cores():
    four = EngineConfig(parallel=ParallelConfig(tp=4))
    machine = Machine(num_cores=8, memory_bytes=8 << 30)
    assert threads_of_a_rank(four, machine) == 2
    assert threads_of_a_rank(four, replace(machine, num_local_ranks=2)) == 4
    assert threads_of_a_rank(replace(four, num_threads=3), machine) == 3
    assert read_env({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}).num_local_ranks == 2
    assert read_env({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": ""}).num_local_ranks is None
    alone = read_env({"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
    assert (alone.local_rank, alone.num_local_ranks) == (None, None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny_llama(tmp_path_factory.mktemp("ranks") / "tiny.gguf"))


def test_what_ranks_cannot_do_is_refused_before_any_is_started(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
):
    gpu = Machine(num_cores=2, memory_bytes=8 << 30, num_gpus=2, gpu_arch=90)
    monkeypatch.setattr(others, "read_machine", lambda: gpu)
    with pytest.raises(ConfigError, match=r"4 ranks need a GPU each, and torch sees 2"):
        find_ranks(checkpoint, EngineConfig(parallel=ParallelConfig(tp=4)))
    with pytest.raises(ConfigError, match=r"4 ranks need a GPU each"):
        find_ranks(checkpoint, EngineConfig(parallel=ParallelConfig(tp=2, dp=2)))
    assert find_ranks(checkpoint, EngineConfig()) is None
