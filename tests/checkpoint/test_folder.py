# SPDX-License-Identifier: Apache-2.0
"""Folders of Hugging Face's kind: what they are opened into, and what is wrong with others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint import open_checkpoint

CONFIG = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "eos_token_id": 3,
    "bos_token_id": 1,
}


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards with an index, a tokenizer, a generation configuration."""
    path = tmp_path / "Tiny-1B"
    path.mkdir()
    write_json(path / "config.json", CONFIG)
    save_file({"a": torch.zeros(2)}, path / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(3)}, path / "model-00002-of-00002.safetensors")
    weight_map = {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
    }
    write_json(path / "model.safetensors.index.json", {"weight_map": weight_map})
    write_json(path / "tokenizer.json", {})
    write_json(path / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    write_json(path / "generation_config.json", {"eos_token_id": [5, 3]})
    return path


def test_opens(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.name == "Tiny-1B"
    assert checkpoint.layout == "huggingface"
    assert checkpoint.model_type == "llama"
    assert checkpoint.config["head_dim"] == 4
    assert {name: entry.path.name for name, entry in checkpoint.tensors.items()} == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
    }
    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.bos_token_id == 1
    assert checkpoint.eos_token_ids == (5, 3)
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.files["tokenizer.json"] == folder / "tokenizer.json"
    assert "merges.txt" not in checkpoint.tokenizer.files
    shards = [folder / f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert checkpoint.num_bytes == sum(shard.stat().st_size for shard in shards)


def test_one_file_without_an_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    save_file({"c": torch.zeros(2)}, folder / "model.safetensors")
    assert list(open_checkpoint(folder).tensors) == ["c"]


def test_where_the_template_is(folder: Path) -> None:
    def found() -> tuple[str | None, str | None]:
        checkpoint = open_checkpoint(folder)
        return checkpoint.chat_template, checkpoint.tool_template

    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    broken = ["text", {"name": ["default"], "template": "X"}, {"name": "default", "template": 7}]
    write_json(folder / "tokenizer_config.json", {"chat_template": [*named, *broken]})
    write_json(folder / "chat_template.json", {"chat_template": "P"})
    assert found() == ("D", "T")
    (folder / "chat_template.jinja").write_text("J")
    assert found() == ("J", None)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("JT")
    assert found() == ("J", "JT")
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert found() == ("P", None)
    (folder / "chat_template.json").unlink()
    assert found() == (None, None)


def test_what_the_makers_advise_of_sampling(folder: Path) -> None:
    assert open_checkpoint(folder).sampling == {}
    sound = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1.05}
    others = {"do_sample": True, "max_length": 20, "typical_p": 1.0}
    write_json(folder / "generation_config.json", sound | others)
    assert open_checkpoint(folder).sampling == sound
    broken = {
        "temperature": 9,
        "top_k": 0.5,
        "top_p": 1.5,
        "min_p": True,
        "repetition_penalty": "1",
    }
    write_json(folder / "generation_config.json", broken)
    assert open_checkpoint(folder).sampling == {}


def test_a_text_model_inside_a_larger_one(folder: Path) -> None:
    text = {"model_type": "gemma3_text", "num_hidden_layers": 6}
    write_json(folder / "config.json", {"model_type": "gemma3", "text_config": text})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.model_type == "gemma3_text"
    assert checkpoint.config["tie_word_embeddings"] is True


def test_the_name_in_the_hubs_cache(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--Tiny-1B" / "snapshots" / "0123abc"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    assert open_checkpoint(snapshot).name == "org/Tiny-1B"


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def put(name: str, content: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / name, content)


INDEX = "model.safetensors.index.json"
BROKEN: dict[str, tuple[Callable[[Path], None], type[Exception], str]] = {
    "no config": (
        remove("config.json"), CheckpointNotFound,
        r"the folder has no config\.json; give a folder with config\.json and safetensors, or",
    ),
    "no config, but GGUF": (
        lambda folder: (folder / "config.json").rename(folder / "some.gguf"), CheckpointNotFound,
        r"the folder has no config\.json; name a GGUF file in it: .*/some\.gguf",
    ),
    "no model type": (
        put("config.json", {}), UnsupportedCheckpoint,
        r"config\.json: no model_type is given; supported are llama, ",
    ),
    "no index": (remove(INDEX), CheckpointNotFound, "neither model.safetensors nor"),
    "no shard": (
        remove("model-00002-of-00002.safetensors"), CheckpointNotFound,
        "2 files, of which 1 are missing: model-00002-of-00002.safetensors; download",
    ),
    "config is a list": (put("config.json", []), CheckpointCorrupt, "not a JSON object"),
    "index is empty": (put(INDEX, {"weight_map": {}}), CheckpointCorrupt, "missing or empty"),
    "index escapes": (
        put(INDEX, {"weight_map": {"a": "../other.safetensors"}}), CheckpointCorrupt,
        "'../other.safetensors' is not the name of a file here",
    ),
    "index lacks a tensor": (
        put(INDEX, {"weight_map": {"x": "model-00001-of-00002.safetensors"}}), CheckpointCorrupt,
        "tensor 'a' is not where",
    ),
    "shard lacks a tensor": (
        put(INDEX, {"weight_map": {
            "a": "model-00001-of-00002.safetensors", "x": "model-00001-of-00002.safetensors",
        }}),
        CheckpointCorrupt, "tensor 'x' .* is in no file",
    ),
    "quantized": (
        put("config.json", {**CONFIG, "quantization_config": {"quant_method": "gptq"}}),
        UnsupportedCheckpoint, "quantized as 'gptq'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "error", "what"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_named(
    folder: Path, harm: Callable[[Path], None], error: type[Exception], what: str
) -> None:
    harm(folder)
    with pytest.raises(error, match=what) as caught:
        open_checkpoint(folder)
    assert str(folder) in str(caught.value)


def test_text_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"{\xff")
    with pytest.raises(CheckpointCorrupt, match="not UTF-8"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointCorrupt, match="not sound JSON"):
        open_checkpoint(folder)


def test_pickles_are_refused(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UnsupportedCheckpoint, match="can run code"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_of_a_folder_is_told_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UnsupportedCheckpoint, match=f"give the folder, {tmp_path}"):
        open_checkpoint(tmp_path / name)
