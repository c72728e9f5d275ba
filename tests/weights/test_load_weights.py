# SPDX-License-Identifier: Apache-2.0
"""Every tensor of a checkpoint is used exactly once, or named in an error; pages do not stay."""

import os
import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

from tests.models.tiny import Arrays, llama_config, random_llama, write_gguf, write_tiny_llama
from tokenlight.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointNotFound,
    UnsupportedCheckpoint,
)
from tokenlight.checkpoint import open_checkpoint
from tokenlight.kernels import FORMATS
from tokenlight.models import load_model
from tokenlight.weights import StoredTensor
from tokenlight.weights.gguf_names import hugging_face_name

NUM_MUTANTS = 400


def write(path: Path, state: Arrays, **changes: float) -> Path:
    write_gguf(path, "llama", {**llama_config(vocab_size=300), **changes}, state, tokenizer=False)
    return path


@pytest.fixture
def state() -> dict[str, np.ndarray]:
    return dict(random_llama(llama_config(vocab_size=300), seed=1, tied=True))


def test_a_missing_tensor_is_named(tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    del state["model.layers.1.mlp.up_proj.weight"]
    path = write(tmp_path / "a.gguf", state)
    with pytest.raises(
        CheckpointCorrupt, match=r"missing tensors: 'layers\.1\.mlp\.up_proj\.weight';"
    ):
        load_model(open_checkpoint(path))


def test_an_unexpected_tensor_is_named(tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    state["model.layers.1.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
    path = write(tmp_path / "a.gguf", state)
    with pytest.raises(UnsupportedCheckpoint, match=r"'llama' .*: 'blk\.1\.attn_q\.bias'$"):
        load_model(open_checkpoint(path))


def test_a_tensor_of_a_layer_too_many_is_named(
    tmp_path: Path, state: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path / "a.gguf", state, num_hidden_layers=1)
    with pytest.raises(UnsupportedCheckpoint, match=r"'blk\.1\.[a-z_]+\.weight'.* and 4 more"):
        load_model(open_checkpoint(path))


def test_a_wrong_shape_is_named(tmp_path: Path, state: dict[str, np.ndarray]) -> None:
    state["model.layers.0.mlp.down_proj.weight"] = np.zeros((64, 96), np.float32)
    path = write(tmp_path / "a.gguf", state)
    with pytest.raises(CheckpointCorrupt, match=r"ffn_down.*\[64, 96\].*implies \[64, 128\]"):
        load_model(open_checkpoint(path))


def test_a_model_type_without_a_file_is_named(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "a.gguf"))
    for model_type in ("mamba", "base", "../llama", ""):
        changed = replace(checkpoint, model_type=model_type)
        with pytest.raises(UnsupportedCheckpoint, match=r"supported are .*llama"):
            load_model(changed)


@pytest.mark.parametrize("format", ["f32", "q4_1"])
def test_mutated_files_load_or_raise_typed_errors(tmp_path: Path, format: str) -> None:
    path = tmp_path / "mutant.gguf"
    sound = write_tiny_llama(path, vocab_size=272, hidden_size=32, layers=1, format=format)
    content = sound.read_bytes()
    entries = open_checkpoint(path).tensors.values()
    header = min(entry.offset_bytes for entry in entries)
    chance = random.Random(7)
    outcomes = set()
    for index in range(NUM_MUTANTS):
        mutant = bytearray(content)
        reach = header if index % 2 else len(mutant)
        for _ in range(chance.randint(1, 6)):
            mutant[chance.randrange(reach)] = chance.randrange(256)
        path.unlink()  # written over, it would wait for the disk
        path.write_bytes(mutant)
        try:
            load_model(open_checkpoint(path))
            outcomes.add("loaded")
        except CheckpointError as error:
            outcomes.add(error.code)
    assert outcomes == {"loaded", "checkpoint_corrupt", "unsupported_checkpoint"}


def test_a_file_that_changes_between_opening_and_loading(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "a.gguf")
    checkpoint = open_checkpoint(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CheckpointCorrupt, match="has become shorter"):
        load_model(checkpoint)
    path.unlink()
    with pytest.raises(CheckpointNotFound, match="cannot be read"):
        load_model(checkpoint)


def test_names() -> None:
    assert hugging_face_name("token_embd.weight", "llama") == "model.embed_tokens.weight"
    assert (
        hugging_face_name("blk.12.attn_k.weight", "llama")
        == "model.layers.12.self_attn.k_proj.weight"
    )
    for unknown in ("blk.0.ssm_in.weight", "blk.x.attn_k.weight", "blk", "", "rope.weight"):
        assert hugging_face_name(unknown, "llama") is None


@pytest.mark.parametrize("format", ["f32", "q8_0"])
def test_split_halves_moves_whole_rows(format: str) -> None:
    """Rows of raw bytes, 2 heads of 6: neighbours 0 1, 2 3, 4 5 become halves 0 2 4, 1 3 5."""
    row_bytes = FORMATS[format].row_bytes(32)
    rows = torch.arange(12, dtype=torch.uint8)[:, None].repeat(1, row_bytes)
    stored = StoredTensor(
        name="q", shape=(12, 32), format=FORMATS[format], layout="gguf", rows=rows
    )
    moved = stored.with_split_halves(2).rows.reshape(12, row_bytes)
    assert moved[:, 0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert torch.equal(moved, moved[:, :1].repeat(1, row_bytes))


def test_split_halves_equals_transformers_reading_of_gguf() -> None:
    numbers = np.random.default_rng(2).standard_normal((24, 32), dtype=np.float32)
    for num_heads in (1, 2, 3):
        theirs = LlamaTensorProcessor()._reverse_permute_weights(numbers, num_heads, num_heads)
        rows = torch.from_numpy(numbers).view(torch.uint8)
        stored = StoredTensor(
            name="q", shape=(24, 32), format=FORMATS["f32"], layout="gguf", rows=rows
        )
        ours = stored.with_split_halves(num_heads).dense(torch.float32)
        assert np.array_equal(ours.numpy(), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["f32", "q8_0"])
def test_loading_keeps_the_weights_once(tmp_path: Path, format: str) -> None:
    """Resident memory grows by the file's size, not by twice that: mapped pages are given back."""
    path = write_tiny_llama(
        tmp_path / "a.gguf", vocab_size=8192, hidden_size=1024, layers=4, heads=16, format=format
    )
    measure = textwrap.dedent(f"""
        from pathlib import Path
        from tokenlight.checkpoint import open_checkpoint
        from tokenlight.models import load_model
        def resident_kb():
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        checkpoint = open_checkpoint(Path({str(path)!r}))
        before = resident_kb()
        model = load_model(checkpoint)
        print(resident_kb() - before)
    """)
    ran = subprocess.run(
        [sys.executable, "-c", measure], capture_output=True, check=True, text=True
    )
    grown_bytes = int(ran.stdout) * 1024
    file_bytes = path.stat().st_size
    assert 0.9 * file_bytes < grown_bytes < file_bytes + (48 << 20)
