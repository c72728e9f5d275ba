# SPDX-License-Identifier: Apache-2.0
"""`tokenlight plan` of a configuration alone: its numbers are those of arithmetic on the config."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tokenlight.cli import EXIT_FAILED, EXIT_USAGE, main

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
SHARED_PARAMETERS = 2 * 128256 * 4096 + 32 * (
    4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
)
NORMS = 4096 * (2 * 32 + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def plan(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    assert main(["plan", *map(str, argv), "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_one_rank_sends_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(capsys, folder)
    assert made["collectives"] == {}
    assert made["sent_token_bytes"] == made["sent_sampled_row_bytes"] == 0
    frequencies = 4 * 64
    assert made["weight_bytes"] == 2 * (SHARED_PARAMETERS + NORMS) + frequencies


def test_four_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sums per layer, one of the embedding, one gather of logits; a quarter of the weights."""
    made = plan(capsys, folder, "--tp", 4)
    assert made["collectives"] == {"all_reduce": 65, "all_gather": 1}
    assert made["replicated_bytes"] == 2 * NORMS + 4 * 64
    assert made["weight_bytes"] == 2 * SHARED_PARAMETERS // 4 + made["replicated_bytes"]
    assert made["kv_token_bytes"] == 32 * 2 * 2 * 128 * 2
    assert made["sent_token_bytes"] == 65 * 2 * 3 / 4 * 4096 * 2
    assert made["sent_sampled_row_bytes"] == 3 * 128256 // 4 * 2
    layers = {layer["names"][0]: layer for layer in made["layers"]}
    assert layers["layers.0"]["names"] == [f"layers.{i}" for i in range(32)]
    collectives = [call for call in layers["layers.0"]["calls"] if call["group"]]
    assert [(c["op"], c["at"], c["group"]) for c in collectives] == [
        ("all_reduce", "self_attn", [0, 1, 2, 3]),
        ("all_reduce", "mlp", [0, 1, 2, 3]),
    ]


def test_kv_heads_fewer_than_ranks_have_copies(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(capsys, folder, "--tp", 16)
    assert made["kv_token_bytes"] == 32 * 2 * 1 * 128 * 2


def test_ranks_with_other_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(capsys, folder, "--tp", 2, "--dp", 2)
    assert made["groups"]["attn_tp"] == [0, 1]
    assert made["groups"]["dp"] == [0, 2]
    assert made["collectives"] == {"all_reduce": 65, "all_gather": 33, "reduce_scatter": 32}


def test_the_text_names_collectives_and_bytes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(folder), "--tensor-parallel-size", "4"]) == 0
    text = capsys.readouterr().out
    assert "layers.0 to layers.31, 32 alike" in text
    assert "* all_reduce         ranks 0-3" in text
    assert "12.3 KB per token" in text
    assert "weights   4.02 GB on this rank, 532.7 KB of them on every rank: input_layernorm" in text


def test_the_picture_has_every_call_of_every_rank(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(capsys, folder, "--tp", 4, "--svg", tmp_path / "plan.svg")
    root = ElementTree.parse(tmp_path / "plan.svg").getroot()
    boxes = [box for box in root.iter() if box.tag.endswith("rect")]
    assert len(boxes) == 4 * sum(len(layer["calls"]) for layer in made["layers"])


def test_what_cannot_be_split_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder), "--tp", "3"]) == EXIT_USAGE
    assert "32 attention heads cannot be split evenly over 3 ranks" in capsys.readouterr().err


def test_an_absent_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(tmp_path / "nothing")]) == EXIT_FAILED
    assert "there is no such file or folder" in capsys.readouterr().err
