# SPDX-License-Identifier: Apache-2.0
"""Every model on every mesh, a process per rank over gloo: logits equal transformers'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.hugging_face import logits_of, make_twin, random_state
from tests.models.test_every_model import TOLERANCE, VARIANTS
from tests.spmd.gloo import Answers, Ranks
from tests.spmd.test_models_on_ranks import DENSE, MESHES, SPARSE, save
from tokenlight.spmd import Widths

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(240)]

FIRST_TOKENS, SECOND_TOKENS = 21, 17
# Each rank has its own tokens and its own experts: tokens are sent to theirs.
SPREAD = Widths(num_ranks=4, attn_tp=1, dense_tp=1, moe_tp=1)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    made = Ranks(4, tmp_path_factory.mktemp("gloo"))
    yield made
    made.close()


def prompts(group: int) -> tuple[list[int], list[int]]:
    rng = np.random.default_rng(group)
    return rng.integers(0, 300, FIRST_TOKENS).tolist(), rng.integers(0, 300, SECOND_TOKENS).tolist()


def expected(model: str, group: int) -> Answers:
    variant = VARIANTS[model]
    config = {**variant.config, "num_hidden_layers": 2}
    twin = make_twin(variant.model_type, config, random_state(variant.model_type, config, seed=3))
    first, second = (logits_of(twin, prompt).numpy() for prompt in prompts(group))
    return {
        "prefill, then decode": first,
        "mixed with a decode": second,
        "after a prefix hit": first[8:],
        "preempted and computed again": first,
    }


@pytest.mark.parametrize("model", DENSE + SPARSE)
def test_logits_equal_transformers(ranks: Ranks, tmp_path: Path, model: str) -> None:
    save(model, tmp_path / "model")
    meshes = {"tp1": Widths(), **MESHES}
    if model in SPARSE and VARIANTS[model].config.get("n_routed_experts", 1) % 4 == 0:
        meshes["dp4-ep4"] = SPREAD
    want = [expected(model, group) for group in range(4)]
    for name, widths in meshes.items():
        if model in DENSE and name.startswith("ep"):
            continue
        given = ranks.run(tmp_path / "model", widths, [prompts(group) for group in range(4)])
        assert len(given) == widths.num_ranks
        for rank, answers in enumerate(given):
            for how, theirs in want[rank // widths.attn_tp].items():
                difference = float(np.abs(answers[how] - theirs).max())
                assert difference < TOLERANCE, f"{name}, rank {rank}, {how}"
        assert all(np.isfinite(answers["after a prefix hit"]).all() for answers in given)
    assert float(torch.from_numpy(want[0]["prefill, then decode"]).std()) > 0.5
