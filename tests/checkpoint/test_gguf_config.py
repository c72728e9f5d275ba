# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's metadata becomes config.json's keys, or an error that names the value at fault."""

import os
import struct
from pathlib import Path

import pytest

from tests.checkpoint.bytes_of_gguf import Gguf, array, number, tensor, text, value
from tests.models.tiny import CHAT_TEMPLATE, write_tiny_llama
from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, open_checkpoint


def open_with(path: Path, *values: bytes) -> Checkpoint:
    """A small llama whose values are replaced or joined by `values`."""
    sample = Gguf()
    keys = {key_of(each): each for each in [*sample.values, *values]}
    sample.values = list(keys.values())
    path.write_bytes(sample.to_bytes())
    return open_checkpoint(path)


def key_of(value: bytes) -> bytes:
    return value[8 : 8 + int.from_bytes(value[:8], "little")]


def real(key: str, amount: float) -> bytes:
    return value(key, 6, struct.pack("<f", amount))


def test_a_tiny_llama(tmp_path: Path) -> None:
    path = write_tiny_llama(
        tmp_path / "Tiny.gguf", hidden_size=64, heads=4, kv_heads=2, layers=3, head_dim=24
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.name == "Tiny"
    assert checkpoint.model_type == "llama"
    assert dict(checkpoint.config) == {
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "max_position_embeddings": 2048,
        "rms_norm_eps": pytest.approx(1e-5),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 3,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        "query_pre_attn_scalar": 24.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "bos_token_id": 1,
        "eos_token_id": [2],
    }
    assert checkpoint.chat_template == CHAT_TEMPLATE
    assert checkpoint.bos_token_id == 1
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.num_bytes == path.stat().st_size
    assert checkpoint.tokenizer is not None
    assert len(checkpoint.tokenizer.gguf.get_strings("tokenizer.ggml.tokens")) == 512


def test_an_output_matrix_unties_the_embeddings(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", tied=False)
    assert open_checkpoint(path).config["tie_word_embeddings"] is False


def test_what_a_file_may_leave_out(tmp_path: Path) -> None:
    checkpoint = open_with(tmp_path / "a.gguf")
    assert checkpoint.config["head_dim"] == 4
    assert checkpoint.config["rope_parameters"]["full_attention"]["rope_theta"] == 10000.0
    assert checkpoint.chat_template is None
    assert checkpoint.eos_token_ids == ()


def test_the_end_of_a_turn_ends_an_answer_as_well(tmp_path: Path) -> None:
    ends = [number("tokenizer.ggml.eos_token_id", 3), number("tokenizer.ggml.eot_token_id", 1)]
    assert open_with(tmp_path / "a.gguf", *ends).eos_token_ids == (3, 1)


CORRUPT: dict[str, tuple[list[bytes], str]] = {
    "zero heads": ([number("llama.attention.head_count", 0)], "head_count is 0"),
    "absurd hidden size": ([number("llama.embedding_length", 1 << 31)], "is 2147483648"),
    "odd heads": (
        [number("llama.attention.head_count", 3)],
        "8 is not a multiple of num_attention_heads 3",
    ),
    "more layers than tensors": ([number("llama.block_count", 2)], "only 1 tensors"),
    "absurd layers": ([number("llama.block_count", 100_000)], "block_count is 100000"),
    "text for a number": ([text("llama.context_length", "8k")], "must be a whole number"),
    "eps": ([real("llama.attention.layer_norm_rms_epsilon", 0)], "must be a positive number"),
    "theta": ([real("llama.rope.freq_base", float("nan"))], "rope_theta is nan"),
    "eos": ([number("tokenizer.ggml.eos_token_id", 4)], "the vocabulary has 4"),
}


@pytest.mark.parametrize(("values", "what"), CORRUPT.values(), ids=CORRUPT)
def test_a_value_that_cannot_be(tmp_path: Path, values: list[bytes], what: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=what) as caught:
        open_with(tmp_path / "a.gguf", *values)
    assert str(tmp_path / "a.gguf") in caught.value.message


UNSUPPORTED: dict[str, tuple[list[bytes], str]] = {
    "architecture": ([text("general.architecture", "mamba")], "'mamba' is not supported; .*llama"),
    "value heads": ([number("llama.attention.value_length", 8)], "only equal sizes"),
    "partial rope": ([number("llama.rope.dimension_count", 2)], "only equal sizes"),
    "per layer": (
        [array("llama.feed_forward_length", 4, 1, struct.pack("<I", 8))], "from layer to layer",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("values", "what"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_value_that_we_do_not_have(tmp_path: Path, values: list[bytes], what: str) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=what) as caught:
        open_with(tmp_path / "a.gguf", *values)
    assert str(tmp_path / "a.gguf") in caught.value.message


def test_a_missing_size_is_named(tmp_path: Path) -> None:
    sample = Gguf()
    sample.values = [each for each in sample.values if b"feed_forward" not in each]
    (tmp_path / "a.gguf").write_bytes(sample.to_bytes())
    with pytest.raises(CheckpointCorrupt, match=r"'llama\.feed_forward_length' is missing"):
        open_checkpoint(tmp_path / "a.gguf")


def test_a_missing_embedding_is_named(tmp_path: Path) -> None:
    sample = Gguf(tensors=[tensor("output_norm.weight", (8,))])
    (tmp_path / "a.gguf").write_bytes(sample.to_bytes())
    with pytest.raises(CheckpointCorrupt, match=r"token_embd\.weight"):
        open_checkpoint(tmp_path / "a.gguf")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="there is no such file"):
        open_checkpoint(tmp_path / "absent.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(CheckpointNotFound, match="is neither a file nor a folder"):
        open_checkpoint(tmp_path / "pipe.gguf")
