# SPDX-License-Identifier: Apache-2.0
"""`tokenlight plan` of a configuration alone: its numbers are those of arithmetic on the config."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.checkpoint.fake_hub import FakeHub, serve_hub
from tests.models.tiny import write_tiny_llama
from tokenlight.checkpoint import fetch_hub_config, fetch_hub_model, find_hub_gguf
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


def test_a_picture_that_cannot_be_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(folder), "--svg", str(tmp_path / "no" / "plan.svg")]) == EXIT_USAGE
    assert "no/plan.svg cannot be written: No such file" in capsys.readouterr().err


def test_what_cannot_be_split_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder), "--tp", "3"]) == EXIT_USAGE
    assert "32 attention heads cannot be split evenly over 3 ranks" in capsys.readouterr().err


def test_an_absent_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for absent in (str(tmp_path / "nothing"), "~nobody-of-that-name/model"):
        assert main(["plan", absent]) == EXIT_FAILED
        assert "there is no such file or folder" in capsys.readouterr().err


def test_a_rank_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder), "--tp", "4", "--rank", "4"]) == EXIT_USAGE
    assert "--rank 4: the ranks are 0 to 3 of 4" in capsys.readouterr().err


def test_a_gguf_file_is_planned_as_it_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", format="q8_0")
    made = plan(capsys, path, "--tp", 2)
    assert (made["model_type"], made["weights_are"]) == ("llama", "stored")
    assert made["weight_bytes"] < 0.6 * path.stat().st_size


HUB_CACHE = "hub"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub with two models, and the functions that ask one made to ask this one."""
    gguf = write_tiny_llama(tmp_path / "sent.gguf", format="q8_0").read_bytes()
    files = {
        "config.json": json.dumps(LLAMA_8B).encode(),
        "model.safetensors": b"never looked at",
        "tokenizer.json": b"{}",
    }
    cache = tmp_path / HUB_CACHE
    with serve_hub(FakeHub({"org/eight": files, "org/tiny-GGUF": {"t-Q8_0.gguf": gguf}})) as served:
        asks = partial(fetch_hub_config, cache_dir=cache, endpoint=served.endpoint)
        monkeypatch.setattr("tokenlight.checkpoint.fetch_hub_config", asks)
        looks = partial(find_hub_gguf, cache_dir=cache)
        monkeypatch.setattr("tokenlight.checkpoint.find_hub_gguf", looks)
        yield served


def test_of_a_hub_model_config_json_alone_is_fetched(
    hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(capsys, "org/eight", "--tp", 4)
    assert hub.fetched == ["config.json"]
    assert (made["model"], made["weights_are"]) == ("org/eight", "bfloat16")
    assert {**made, "model": ""} == {**plan(capsys, folder, "--tp", 4), "model": ""}


def test_a_file_of_the_hub_is_planned_once_it_is_there(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "org/tiny-GGUF:Q8_0"]) == EXIT_FAILED
    assert "run `tokenlight pull org/tiny-GGUF:Q8_0` first" in capsys.readouterr().err
    assert hub.fetched == []
    fetch_hub_model("org/tiny-GGUF:Q8_0", cache_dir=tmp_path / HUB_CACHE, endpoint=hub.endpoint)
    assert plan(capsys, "org/tiny-GGUF:Q8_0", "--tp", 2)["weights_are"] == "stored"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("org/absent", "the Hub has no model org/absent"),
        ("org/tiny-GGUF", "org/tiny-GGUF has no config.json"),
        ("a/b/c", "no such file or folder, and it is not a Hub id"),
    ],
)
def test_what_cannot_be_planned_is_named(
    hub: FakeHub, model: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", model]) == EXIT_FAILED
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_the_hub_clients_own_cache_and_offline_switch(hub: FakeHub, tmp_path: Path) -> None:
    own = {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_CACHE": str(tmp_path / "own"),
        "HF_HUB_OFFLINE": "0",
    }

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tokenlight", "plan", "org/eight", "--tp", "4"]
        return subprocess.run(
            command, env={**os.environ, **own, **more}, capture_output=True, text=True, check=False
        )

    refused = run(HF_HUB_OFFLINE="1")
    assert refused.returncode == EXIT_FAILED
    assert "org/eight is not whole in the cache" in refused.stderr
    assert run().returncode == 0
    hub.fetched.clear()
    again = run(HF_HUB_OFFLINE="1")
    assert "65 all_reduce, 1 all_gather per step" in again.stdout
    assert "as bfloat16: their files are not here" in again.stdout
    assert hub.fetched == []
