# SPDX-License-Identifier: Apache-2.0
"""The head and the token table of Hugging Face folders, in every way that files have them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.models.hugging_face import logits_of, make_twin
from tests.models.rig import Rig
from tests.models.tiny import Arrays, llama_config, random_llama
from tokenlight.base.errors import CheckpointCorrupt
from tokenlight.checkpoint import open_checkpoint
from tokenlight.nn import Linear, TiedHead

CONFIG = llama_config(vocab_size=300)
PROMPT = list(range(10, 30))
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture
def state() -> dict[str, np.ndarray]:
    return dict(random_llama(CONFIG, seed=21, tied=False))


def write_folder(path: Path, state: Arrays, *, tied: bool) -> Path:
    config = {"model_type": "llama", **CONFIG, "tie_word_embeddings": tied}
    (path / "config.json").write_text(json.dumps(config))
    save_file(
        {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()},
        path / "model.safetensors",
    )
    return path


def assert_logits(rig: Rig, state: Arrays) -> None:
    theirs = logits_of(make_twin("llama", CONFIG, state), PROMPT)
    assert float((rig.step({0: PROMPT})[0] - theirs).abs().max()) < 1e-4


def test_a_head_of_other_numbers_wins_over_a_configuration_that_ties(
    tmp_path: Path, state: dict[str, np.ndarray]
) -> None:
    rig = Rig(open_checkpoint(write_folder(tmp_path, state, tied=True)))
    assert isinstance(rig.model.lm_head, Linear)
    assert_logits(rig, state)


def test_a_table_that_is_there_twice_is_kept_once(
    tmp_path: Path, state: dict[str, np.ndarray]
) -> None:
    state[HEAD] = state[TABLE].copy()
    rig = Rig(open_checkpoint(write_folder(tmp_path, state, tied=True)))
    assert isinstance(rig.model.lm_head, TiedHead)
    assert_logits(rig, state)


@pytest.mark.parametrize("name", [HEAD, TABLE])
def test_a_tied_table_under_either_name(
    tmp_path: Path, state: dict[str, np.ndarray], name: str
) -> None:
    del state[TABLE if name == HEAD else HEAD]
    rig = Rig(open_checkpoint(write_folder(tmp_path, state, tied=True)))
    table = state.pop(name)
    assert_logits(rig, {TABLE: table, **state})


def test_a_head_that_is_missing_is_named(tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    del state[HEAD]
    with pytest.raises(CheckpointCorrupt, match=r"missing tensors: 'lm_head\.weight'"):
        Rig(open_checkpoint(write_folder(tmp_path, state, tied=False)))


def test_frequencies_of_old_files_are_left_out(
    tmp_path: Path, state: dict[str, np.ndarray]
) -> None:
    twin_state = dict(state)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    assert_logits(Rig(open_checkpoint(write_folder(tmp_path, state, tied=False))), twin_state)


def test_two_names_for_one_place(tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    state["language_model.model.norm.weight"] = state["model.norm.weight"].copy()
    with pytest.raises(CheckpointCorrupt, match="are for the same place"):
        Rig(open_checkpoint(write_folder(tmp_path, state, tied=False)))
