# SPDX-License-Identifier: Apache-2.0
"""Every model on every mesh, without numbers: its share of the weights, its collectives, its word.

A new model needs no new test: it is found among the variants that are compared with transformers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.models.test_every_model import VARIANTS
from tests.spmd.test_models_on_ranks import MESHES, check_bytes
from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.models import ModelPlan, cache_specs, model_types, plan_model, shard_model
from tokenlight.spmd import PARTIAL, REPLICATE, Mesh, PlacementError, Shard, Widths
from tokenlight.spmd.placement import Declared, Placement, declared

MODELS = {variant.model_type: variant for variant in reversed(VARIANTS.values())}
# Attention with other tokens on every rank, experts of its own.
MESHES_HERE = {**MESHES, "dp4-ep4": Widths(num_ranks=4, attn_tp=1, dense_tp=4, moe_tp=1)}

# What a layer sends between ranks: docs/parallelism.md, "What is sent".
SUMS = {"all_reduce": 2}
WITH_OTHER_TOKENS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
PER_LAYER: dict[str, dict[str, int]] = {
    "tp2": SUMS,
    "tp4": SUMS,
    "ep2": SUMS,
    "ep2-tp2": SUMS,
    "attn-tp2-dp2": WITH_OTHER_TOKENS,
    "dp4-ep4": {"all_gather": 1, "reduce_scatter": 1},
}
# Nothing sees every token but experts: tokens are sent to theirs alone.
ROUTED = {"gather_routed": 1, "scatter_routed": 1}
IS_ROUTED = {("qwen3_moe", "dp4-ep4"), ("gpt_oss", "dp4-ep4")}
# The token table is summed, logits are gathered; ranks that share neither do not speak of them.
PER_STEP = {"all_reduce": 1, "all_gather": 1}


def configured(model_type: str, folder: Path) -> Checkpoint:
    """A folder with its config.json alone."""
    config = {**MODELS[model_type].config, "model_type": model_type, "num_hidden_layers": 2}
    config |= {key: 8 for key in config if key in ("num_experts", "num_local_experts")}
    (folder / "config.json").write_text(json.dumps(config))
    return open_checkpoint(folder, has_weights=False)


def planned(checkpoint: Checkpoint, mesh: Mesh) -> ModelPlan:
    f32 = torch.float32
    sharding = shard_model(checkpoint, mesh)
    return plan_model(sharding, cache_specs(checkpoint, mesh), dtype=f32, kv_dtype=f32)


def test_every_model_type_is_here() -> None:
    assert {*MODELS} >= {*model_types()} - {"gemma3"}  # its text part is


def quickly(names: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Parameters; all but some of them are for `make ci-slow`."""
    return [pytest.param(n, marks=() if n in quick else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("model_type", quickly(MODELS, ("llama", "gemma2", "deepseek_v3")))
def test_each_rank_holds_its_share_and_calls_what_is_written_down(
    tmp_path: Path, model_type: str
) -> None:
    checkpoint = configured(model_type, tmp_path)
    for name, widths in MESHES_HERE.items():
        mesh = Mesh.of(widths)
        for rank in (0, widths.num_ranks - 1):
            shapes = shard_model(checkpoint, mesh.at(rank)).shapes
            check_bytes(checkpoint, widths, shapes)
        plan, rest = planned(checkpoint, mesh), Counter[str]()
        for layer in plan.layers:
            sent = Counter(call.op for call in layer.calls if call.is_collective)
            if layer.names[0].startswith("layers."):
                wanted = ROUTED if (model_type, name) in IS_ROUTED else PER_LAYER[name]
                assert sent == wanted, f"{name}, {layer.names}"
            else:
                rest += sent
        assert rest == (PER_STEP if widths.attn_tp > 1 else {}), name


# A module of each kind that declares its result, and a model that has it.
OF_MODELS = ("llama", "deepseek_v3", "gpt_oss")
EVERY: tuple[Placement, ...] = (REPLICATE, PARTIAL, Shard(0), Shard(1))


def false_ones(told: Declared) -> Iterator[Declared]:
    """The declaration with one placement exchanged, in every way."""
    for (name, true), placement in product(told.inputs.items(), EVERY):
        if placement != true:
            yield told._replace(inputs={**told.inputs, name: placement})
    for placement in EVERY:
        if placement != told.returns:
            yield told._replace(returns=placement)


def declaring(model: nn.Module) -> set[type[nn.Module]]:
    kinds = {type(module) for module in model.modules()}
    return {k for k in kinds if (told := getattr(k.forward, "declared", None)) and told.returns}


def is_refused(checkpoint: Checkpoint, mesh: Mesh) -> bool:
    try:
        planned(checkpoint, mesh)
    except PlacementError:
        return True
    return False


@pytest.mark.parametrize("mesh", quickly(["tp2", "attn-tp2-dp2"], ("tp2",)))
@pytest.mark.parametrize("model_type", quickly(OF_MODELS, ("llama", "gpt_oss")))
def test_a_false_word_of_any_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, mesh: str
) -> None:
    checkpoint, grid = configured(model_type, tmp_path), Mesh.of(MESHES[mesh])
    planned(checkpoint, grid)
    kinds = declaring(shard_model(checkpoint, grid).shapes)
    assert len(kinds) >= 2
    for kind in kinds:
        told = declared(kind.__new__(kind))
        assert told is not None
        for planted in false_ones(told):
            with monkeypatch.context() as patched:
                patched.setattr(kind.forward, "declared", planted)
                assert is_refused(checkpoint, grid), f"{kind.__name__} was believed: {planted}"


def test_every_module_that_declares_itself_is_tried(tmp_path: Path) -> None:
    """In one of the models above."""

    def of(*names: str) -> set[type[nn.Module]]:
        kinds = set[type[nn.Module]]()
        for name in names:
            kinds |= declaring(shard_model(configured(name, tmp_path), Mesh()).shapes)
        return kinds

    assert of(*MODELS) == of(*OF_MODELS)
