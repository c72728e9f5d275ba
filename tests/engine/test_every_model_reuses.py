# SPDX-License-Identifier: Apache-2.0
"""Expectation A6: every architecture resumes a conversation where its last turn ended."""

from pathlib import Path

import pytest

from tests.engine.test_rank_groups import BLOCK_TOKENS, NUM_NEW, answer, config_of
from tests.models.test_every_model import VARIANTS
from tests.spmd.test_models_on_ranks import save
from tokenlight.config import ParallelConfig
from tokenlight.engine.client import AsyncLLM

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(120)]

# One of each; where layers have windows, a window that turns outgrow. transformers has no kimi_k2.
MODELS = {v.model_type: name for name, v in VARIANTS.items() if not v.twin_type}
NUM_TURNS = 3


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
async def test_a_turn_reuses_what_the_last_one_read_and_wrote(tmp_path: Path, model: str):
    save(model, tmp_path / "model")
    llm = await AsyncLLM.start(config_of(tmp_path / "model", ParallelConfig()))
    try:
        told, num_known = list(range(9)), BLOCK_TOKENS
        for turn in range(NUM_TURNS):
            ids, num_cached = await answer(llm, f"turn-{turn}", told)
            assert len(ids) == NUM_NEW
            assert num_cached >= num_known - BLOCK_TOKENS
            num_known = len(told) + len(ids)
            told += [*ids, 7, 3]
    finally:
        await llm.close()
