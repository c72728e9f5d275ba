# SPDX-License-Identifier: Apache-2.0
"""Slots that are packed while others are filled end with the numbers of slots packed at once."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import TensorEntry, open_checkpoint
from tokenlight.models import CausalLM, load_model
from tokenlight.weights import Slot, StoredTensor, Target, filling, pack_rows
from tokenlight.weights.filling import Filling
from tokenlight.weights.mapped import MappedFiles

CPU = Target(torch.device("cpu"), torch.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "a.gguf", hidden_size=256, layers=3, format="q8_0")


def load_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> CausalLM:
    def fill(
        self: Filling, slot: Slot, parts: Sequence[StoredTensor], _: Sequence[TensorEntry]
    ) -> None:
        slot.fill(parts, CPU)

    with monkeypatch.context() as patch:
        patch.setattr(Filling, "fill", fill)
        return load_model(open_checkpoint(path))


@pytest.mark.parametrize("max_waiting_bytes", [0, 100_000, filling.MAX_WAITING_BYTES])
def test_a_model_is_what_it_is_when_packed_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, max_waiting_bytes: int
) -> None:
    want = load_at_once(path, monkeypatch).state_dict()
    monkeypatch.setattr(filling, "MAX_WAITING_BYTES", max_waiting_bytes)
    got = load_model(open_checkpoint(path)).state_dict()
    assert got.keys() == want.keys()
    for name, weight in want.items():
        assert torch.equal(got[name], weight), name


def test_a_fault_leaves_nothing_half_packed(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    files = MappedFiles(checkpoint.layout)
    entry = max(checkpoint.tensors.values(), key=lambda each: each.num_bytes)
    parts = [files.read(entry)]
    packed = []

    def fill(given: Sequence[StoredTensor], target: Target) -> None:
        packed.append(pack_rows(given, target)[0])

    def refuse(given: Sequence[StoredTensor], target: Target) -> None:
        raise ArithmeticError

    def fill_all() -> None:
        with Filling(files, CPU) as being_filled:
            for each in [fill] * 5 + [refuse]:
                being_filled.fill(Slot(part_shapes=(entry.shape,), fill=each), parts, [entry])

    with pytest.raises(ArithmeticError):
        fill_all()
    want, _ = pack_rows(parts, CPU)
    assert len(packed) == 5
    assert all(torch.equal(weight, want) for weight in packed)
