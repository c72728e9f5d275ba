# SPDX-License-Identifier: Apache-2.0
"""Dummy weights: normal, the same everywhere, and enough to run a model of config.json alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.engine.rig import generate
from tests.models.tiny import llama_config
from tokenlight import wire
from tokenlight.base.errors import CheckpointNotFound
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.control import Scheduler
from tokenlight.models import load_model
from tokenlight.runner import ModelRunner, scheduler_config
from tokenlight.weights.dummy import dummy_tensor, fill_with_dummies
from tokenlight.weights.piece import Piece
from tokenlight.weights.slot import Slot, Target
from tokenlight.weights.stored import StoredTensor

CPU = torch.device("cpu")
FIRST_BITS = [-17503, -17306, 15446, 15294, -17320, -17563]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {**llama_config(), "model_type": "llama", "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def numbers(name: str, *shape: int) -> torch.Tensor:
    return dummy_tensor(name, shape, CPU).dense(torch.float64)


def test_they_are_normal_and_independent():
    x = numbers("layers.0.mlp.up_proj.weight", 1024, 1024) / 0.02
    assert abs(x.mean()) < 0.005
    assert abs(x.std() - 1) < 0.005
    assert abs((x**3).mean()) < 0.02
    assert abs((x**4).mean() - 3) < 0.03
    beyond_two = float((x.abs() > 2).double().mean())
    assert abs(beyond_two - 0.0455) < 0.002
    for pairs in (torch.corrcoef(x[:128]), torch.corrcoef(x[:, :128].T)):
        assert (pairs - torch.eye(128, dtype=torch.float64)).abs().max() < 0.17


def test_a_number_is_a_function_of_name_row_and_column():
    whole = numbers("a.weight", 300, 200)
    assert torch.equal(numbers("a.weight", 100, 200), whole[:100])
    assert torch.equal(numbers("a.weight", 300, 60), whole[:, :60])
    assert not torch.equal(numbers("b.weight", 300, 200), whole)
    # Written down, so that no change of the generator goes unseen.
    bits = dummy_tensor("a.weight", (2, 3), CPU).rows.view(torch.int16).flatten()
    assert bits.tolist() == FIRST_BITS


def test_large_tensors_are_made_in_pieces_that_fit(monkeypatch):
    whole = numbers("a.weight", 300, 200)
    monkeypatch.setattr("tokenlight.weights.dummy._PIECE_ELEMENTS", 7 * 200)
    assert torch.equal(numbers("a.weight", 300, 200), whole)


def test_gains_are_around_one():
    gains = numbers("norm.weight", 4096)
    assert abs(gains.mean() - 1) < 0.002
    assert 0.01 < gains.std() < 0.03


def test_fused_parts_are_the_tensors_that_a_checkpoint_would_have(folder):
    model = load_model(open_checkpoint(folder, has_weights=False), is_dummy=True)
    qkv = model.layers[1].self_attn.qkv_proj.runs[0].weight
    names = [f"layers.1.self_attn.{part}_proj.weight" for part in "qkv"]
    parts = [numbers(name, rows, 64) for name, rows in zip(names, (64, 32, 32), strict=True)]
    assert torch.equal(qkv.double(), torch.cat(parts))


class Keeping(nn.Module):
    """Keeps what its slot is given as it is given."""

    WHOLE = (16, 64)

    def slots(self) -> dict[str, Slot]:
        return {"weight": Slot(part_shapes=(self.WHOLE,), fill=self.keep)}

    def keep(self, parts: Sequence[StoredTensor], target: Target) -> None:
        (self.part,) = parts


@pytest.mark.parametrize(("starts", "lengths"), [((8, 0), (8, 64)), ((0, 32), (16, 32))])
def test_a_part_of_a_tensor_lies_in_memory_of_its_own(starts, lengths):
    """As kernels read it, and without the rest of the tensor, which other ranks hold."""
    layer = Keeping()
    pieces = {"layer.weight": [Piece(Keeping.WHOLE, starts, lengths)]}
    fill_with_dummies(nn.ModuleDict({"layer": layer}), {}, Target(CPU, torch.bfloat16), pieces)
    rows = layer.part.rows
    assert rows.is_contiguous()
    assert rows.untyped_storage().nbytes() == rows.nbytes == 2 * 8 * 64
    halves = numbers("layer.weight", *Keeping.WHOLE).chunk(2, int(starts[1] > 0))
    assert torch.equal(layer.part.dense(torch.float64), halves[1])


def test_a_folder_with_config_json_alone_runs(folder):
    with pytest.raises(CheckpointNotFound):
        open_checkpoint(folder)
    runner = ModelRunner.load(
        EngineConfig(
            model=ModelConfig(model=str(folder), load_format="dummy"), num_threads=1, device="cpu"
        )
    )
    assert runner.facts.weights_bytes > 64 * 512 * 2
    scheduler = Scheduler(scheduler_config(runner.config, hash_key=bytes(16)))
    request = generate("a", [5, 6, 7], max_new_tokens=3)
    runner.add(0, request.sampling)
    scheduler.submit(0, wire.unpack_token_ids(request.prompt_token_ids), max_new_tokens=3)
    plan = scheduler.plan(0)
    sampled = runner.execute(plan)
    assert len(sampled.bad_rows) == 0
    assert 0 <= sampled.token_ids[0] < 512
    scheduler.commit(plan.guard, sampled.token_ids)
