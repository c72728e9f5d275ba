# SPDX-License-Identifier: Apache-2.0
"""Hub ids, against a Hub on loopback: only a model's files are fetched, once, and offline works."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from tests.checkpoint.fake_hub import COMMIT, TOKEN, FakeHub, serve_hub
from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import CheckpointNotFound, DownloadFailed
from tokenlight.checkpoint import fetch_hub_model, is_hub_id, locate_model, open_checkpoint
from tokenlight.checkpoint.fetch.progress import FetchProgress

CONFIG = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SAFETENSORS = save({"a": torch.zeros(100)})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    ggufs = {
        f"tiny-{quantization}.gguf": write_tiny_llama(
            tmp_path / "sent.gguf", format=quantization.lower()
        ).read_bytes()
        for quantization in ("Q4_0", "Q8_0")
    }
    folder = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": SAFETENSORS,
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"not wanted",
        "onnx/model.onnx": b"not wanted",
        "README.md": b"not wanted",
    }
    repositories = {
        "org/tiny": folder,
        "org/tiny-GGUF": ggufs,
        "org/split-gguf": {f"q8_0/t-q8_0-0000{n}-of-00002.gguf": b"x" for n in (1, 2)},
        "org/numbered": {
            "config.json": folder["config.json"],
            "model.safetensors-00001-of-00001.safetensors": SAFETENSORS,
            "model.safetensors.index.json": json.dumps(
                {"weight_map": {"a": "model.safetensors-00001-of-00001.safetensors"}}
            ).encode(),
            "additional_chat_templates/tool_use.jinja": b"T",
            "chat_template.jinja": b"D",
        },
        "org/gated": folder,
    }
    with serve_hub(FakeHub(repositories, gated={"org/gated"})) as served:
        yield served


def fetch(
    hub: FakeHub, model: str, tmp_path: Path, heard: list[FetchProgress] | None = None
) -> Path:
    listen = [].append if heard is None else heard.append
    return fetch_hub_model(model, listen, cache_dir=tmp_path / "hub", endpoint=hub.endpoint)


def test_a_folder_is_fetched_once(hub: FakeHub, tmp_path: Path) -> None:
    heard: list[FetchProgress] = []
    path = fetch(hub, "org/tiny", tmp_path, heard)
    checkpoint = open_checkpoint(path)
    assert checkpoint.name == "org/tiny"
    assert list(checkpoint.tensors) == ["a"]
    wanted = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {each.name for each in path.iterdir()} == wanted
    assert set(hub.fetched) == wanted
    assert heard[0].stage == "start"
    assert heard[0].total_bytes == sum(len(hub.repositories["org/tiny"][name]) for name in wanted)
    heard.clear()
    hub.fetched.clear()
    assert fetch(hub, "org/tiny", tmp_path, heard) == path
    assert (hub.fetched, heard) == ([], [])


def test_shards_of_either_spelling_and_templates_are_fetched(hub: FakeHub, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(fetch(hub, "org/numbered", tmp_path))
    assert list(checkpoint.tensors) == ["a"]
    assert (checkpoint.chat_template, checkpoint.tool_template) == ("D", "T")


def test_a_quantization_is_one_file(hub: FakeHub, tmp_path: Path) -> None:
    for spelled in ("Q8_0", "q8_0"):
        path = fetch(hub, f"org/tiny-GGUF:{spelled}", tmp_path)
        assert path.name == "tiny-Q8_0.gguf"
    assert hub.fetched == ["tiny-Q8_0.gguf"]
    assert open_checkpoint(path).model_type == "llama"


def test_a_split_file_is_all_its_parts(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch(hub, "org/split-gguf:Q8_0", tmp_path)
    assert path.name == "t-q8_0-00001-of-00002.gguf"
    assert len(list(path.parent.iterdir())) == 2


def test_what_is_not_there_is_named(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="the Hub has no model org/absent"):
        fetch(hub, "org/absent", tmp_path)
    with pytest.raises(CheckpointNotFound, match=r"org/tiny-GGUF:Q2_K: .* found: none"):
        fetch(hub, "org/tiny-GGUF:Q2_K", tmp_path)
    with pytest.raises(CheckpointNotFound, match=r"org/tiny-GGUF has no config\.json.*:Q4_K_M"):
        fetch(hub, "org/tiny-GGUF", tmp_path)
    with pytest.raises(CheckpointNotFound, match="no revision 'v9'"):
        fetch_hub_model(
            "org/tiny", revision="v9", cache_dir=tmp_path / "hub", endpoint=hub.endpoint
        )


def test_a_gated_model_wants_a_token(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(DownloadFailed, match=r"gated; .*HF_TOKEN"):
        fetch(hub, "org/gated", tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert open_checkpoint(fetch(hub, "org/gated", tmp_path)).model_type == "llama"


def test_the_cache_serves_when_the_hub_cannot_be_reached(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch(hub, "org/tiny", tmp_path)
    hub.endpoint = "http://127.0.0.1:9"
    assert fetch(hub, "org/tiny", tmp_path) == path
    with pytest.raises(DownloadFailed, match="org/tiny-GGUF is not whole in the cache"):
        fetch(hub, "org/tiny-GGUF:Q8_0", tmp_path)


def test_the_clients_own_offline_switch(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch(hub, "org/tiny", tmp_path)
    hub.fetched.clear()
    code = textwrap.dedent("""
        import sys
        from tokenlight.base.errors import CheckpointError
        from tokenlight.checkpoint import fetch_hub_model
        for model in sys.argv[1:]:
            try:
                print(fetch_hub_model(model))
            except CheckpointError as error:
                print(error.code)
    """)
    command = [sys.executable, "-c", code, "org/tiny", "org/tiny-GGUF:Q8_0"]
    own = {
        "HF_HUB_OFFLINE": "1",
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
    }
    ran = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, check=True, text=True
    )
    assert ran.stdout.split() == [str(path), "download_failed"]
    assert hub.fetched == []


def test_a_revision_may_be_a_commit(hub: FakeHub, tmp_path: Path) -> None:
    path = fetch_hub_model(
        "org/tiny", revision=COMMIT, cache_dir=tmp_path / "hub", endpoint=hub.endpoint
    )
    assert path.name == COMMIT


def test_what_a_hub_id_looks_like() -> None:
    for model in ("org/name", "Qwen/Qwen3-0.6B", "a/b.c_d", "org/name-GGUF:Q4_K_M"):
        assert is_hub_id(model), model
    for model in (
        "",
        "name",
        "/abs/path",
        "a/b/c",
        "org/name:",
        "../up",
        "org/na me",
        "models/some.gguf",
        "models/some.SafeTensors",
    ):
        assert not is_hub_id(model) or model == "../up", model


def test_a_path_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert locate_model("org/name", tmp_path) == Path("org/name")
    for absent in (
        "./absent.gguf",
        "../absent.gguf",
        "/absent/model.gguf",
        "absent.gguf",
        "a/b/c",
        "models/absent.gguf",
        "~nobody-of-that-name/model",
    ):
        with pytest.raises(CheckpointNotFound, match="no such file or folder"):
            locate_model(absent, tmp_path)
    with pytest.raises(CheckpointNotFound, match=r"/a: cannot be looked at: File name too long"):
        locate_model(3000 * "/a", tmp_path)
