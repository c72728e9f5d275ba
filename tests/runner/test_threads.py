# SPDX-License-Identifier: Apache-2.0
"""Who computes: the kernels' threads, one per physical core, and no second pool beside them."""

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.config import EngineConfig, ModelConfig, ParallelConfig
from tokenlight.kernels import _cpu
from tokenlight.runner import ModelRunner
from tokenlight.runner.machine import Machine, read_machine
from tokenlight.runner.ranks import share

pytestmark = pytest.mark.usefixtures("restored_threads")


@pytest.mark.parametrize(("asked", "num_threads"), [(None, read_machine().num_cores), (3, 3)])
def test_the_kernels_have_the_cores_and_torch_has_one_thread(tmp_path, asked, num_threads):
    """Torch's threads wait for each other by spinning: on the cores that the kernels use."""
    torch.set_num_threads(2)
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(model=ModelConfig(model=str(path)), num_threads=asked, device="cpu")
    runner = ModelRunner.load(config)
    assert (_cpu.num_threads(), torch.get_num_threads()) == (num_threads, 1)
    assert runner.config.num_threads == num_threads


@pytest.mark.parametrize(
    ("num_cores", "asked", "num_threads"), [(8, None, 4), (1, None, 1), (8, 3, 3)]
)
def test_ranks_of_a_host_share_its_cores(monkeypatch, tmp_path, num_cores, asked, num_threads):
    told = []

    def stop(count: int) -> None:
        told.append(count)
        raise InterruptedError

    machine = Machine(num_cores=num_cores, memory_bytes=8 << 30)
    monkeypatch.setattr(share, "read_machine", lambda: machine)
    monkeypatch.setattr(share.kernels, "set_num_threads", stop)
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(
        model=ModelConfig(model=str(path)),
        parallel=ParallelConfig(tp=2),
        num_threads=asked,
        device="cpu",
    )
    checkpoint = share.open_model(config)
    with pytest.raises(InterruptedError):
        share.load_share(checkpoint, config, rank=1, timeline=share.Timeline())
    assert told == [num_threads]
