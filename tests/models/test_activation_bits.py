# SPDX-License-Identifier: Apache-2.0
"""How a compiled model rounds activations on a CPU: by format, and by what was asked for."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.models.rig import Rig
from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig
from tokenlight.models import CompiledModel, compile_model
from tokenlight.runner import ModelRunner
from tokenlight.spmd import Limits

PROMPT = [7 * i % 250 for i in range(40)]


def compiled(rig: Rig, activation_bits: int) -> CompiledModel:
    return compile_model(
        rig.model, rig.pool, limits=Limits(T=96, S=96), activation_bits=activation_bits
    )


def outputs(path: Path, activation_bits: int, chunks: list[int]) -> tuple[Tensor, Tensor]:
    """What the last layer gives for the prompt in such chunks, and the head of fixed numbers."""
    rig = Rig(open_checkpoint(path))
    model = compiled(rig, activation_bits)
    made, ids = [], list(PROMPT)
    for chunk in chunks:
        new, ids = ids[:chunk], ids[chunk:]
        made.append(model.hidden(rig.make_step({0: new})))
    fixed_TD = torch.randn(3, made[0].shape[1], generator=torch.Generator().manual_seed(2))
    return torch.cat(made), model.logits(fixed_TD, torch.arange(3, dtype=torch.int32))


@pytest.mark.parametrize(
    ("weight_format", "is_byte"),
    [("q8_0", True), ("q4_k", True), ("q5_k", True), ("q6_k", True), ("q4_1", False)],
)
def test_formats_that_take_bytes(tmp_path: Path, weight_format: str, is_byte: bool) -> None:
    path = write_tiny_llama(
        tmp_path / "tiny.gguf", format=weight_format, tied=False, hidden_size=256
    )
    few, head = outputs(path, 8, [40])
    many, same_head = outputs(path, 15, [40])
    error = float((few - many).norm() / many.norm())
    assert (1e-4 < error < 0.05) if is_byte else error == 0
    assert torch.equal(head, same_head)


def test_an_engine_rounds_as_it_is_told(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", format="q8_0", tied=False, hidden_size=256)
    expected = [outputs(path, bits, [40])[0] for bits in (15, 8)]
    told = []
    plain = EngineConfig(
        model=ModelConfig(model=str(path)), cache=CacheConfig(kv_dtype="float32"), device="cpu"
    )
    for config in (plain, replace(plain, activation_bits=8)):
        runner = ModelRunner.load(config)
        rig = Rig(open_checkpoint(path))
        told.append(runner._model.hidden(rig.make_step({0: PROMPT})).clone())
    assert all(torch.equal(one, other) for one, other in zip(told, expected, strict=True))


@pytest.mark.parametrize("weight_format", ["q8_0", "q4_k"])
def test_bytes_are_the_same_in_any_chunk(tmp_path: Path, weight_format: str) -> None:
    path = write_tiny_llama(
        tmp_path / "tiny.gguf", format=weight_format, tied=False, hidden_size=256
    )
    whole, _ = outputs(path, 8, [40])
    parts, _ = outputs(path, 8, [1, 1, 9, 4, 25])
    assert torch.equal(whole, parts)
