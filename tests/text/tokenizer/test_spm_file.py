# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's own file, as SentencePiece wrote it: the same vocabulary as in a GGUF file."""

import json
import random
import shutil

import pytest

from tests.text.corpus import make_strings
from tests.text.tokenizer.saved import folder
from tests.text.tokenizer.vocabularies import GOLDEN_DIR, spm_vocabulary, write_spm_gguf
from tokenlight.base.errors import CheckpointCorrupt, CheckpointError, UnsupportedCheckpoint
from tokenlight.checkpoint import open_checkpoint
from tokenlight.text import Tokenizer
from tokenlight.text.tokenizer.spm_file import read_spm_file

FILE = GOLDEN_DIR / "spm-llama.model"


def field(number, value):
    """One protobuf field: a number, or bytes of less than 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


PIECE = field(1, field(1, b"a"))
BPE = field(2, field(3, 2))
KEEPS_SPACES = field(3, field(4, 0))


def test_pieces_scores_and_types_are_sentencepieces():
    known = spm_vocabulary("spm-llama")
    found = read_spm_file(FILE)
    assert found.typed.tokens == known.pieces
    assert found.typed.types == known.types
    assert found.scores == known.scores
    assert found.adds_space


@pytest.fixture
def saved(tmp_path):
    shutil.copy(FILE, tmp_path / "tokenizer.model")
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "added_tokens_decoder": {}}
    size = len(spm_vocabulary("spm-llama").pieces)
    config["added_tokens_decoder"] = {
        "0": {"content": "<unk>", "special": True},
        "1": {"content": "<s>", "special": True},
        str(size): {"content": "<|im_start|>", "special": True},
        str(size + 1): {"content": "<think>", "special": False},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_ids_and_texts_are_those_of_the_gguf_file(saved, tmp_path):
    ours = Tokenizer.from_checkpoint(folder(saved))
    gguf = write_spm_gguf(tmp_path / "same.gguf", "spm-llama")
    same = Tokenizer.from_checkpoint(open_checkpoint(gguf))
    assert ours.bos_token_id == same.bos_token_id
    assert ours.eos_token_ids == same.eos_token_ids
    for text in make_strings(500, seed=18, specials=["<s>", "</s>", "<unk>"]):
        ids = ours.encode(text)
        assert ids == same.encode(text), repr(text)
        assert ours.decode(ids) == same.decode(ids)


def test_added_tokens_come_behind_the_pieces(saved):
    size = len(spm_vocabulary("spm-llama").pieces)
    tokenizer = Tokenizer.from_checkpoint(folder(saved))
    assert tokenizer.vocab_size == size + 2
    assert tokenizer.encode("<|im_start|><think>", add_bos=False) == [size, size + 1]
    assert tokenizer.is_special(size)
    assert tokenizer.decode([size, size + 1]) == "<think>"


def test_a_gap_between_added_tokens_is_refused(saved):
    config = {"added_tokens_decoder": {"9999": {"content": "<far>", "special": True}}}
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointCorrupt, match="9999"):
        Tokenizer.from_checkpoint(folder(saved))


@pytest.mark.parametrize(
    ("raw", "fault", "message"),
    [
        (b"", CheckpointCorrupt, "no pieces"),
        (b"\x0a", CheckpointCorrupt, "is not a SentencePiece model"),
        (b"\x0a\x7fa", CheckpointCorrupt, "cut short"),
        (b"\xff" * 20, CheckpointCorrupt, "too long"),
        (field(1, 3), CheckpointCorrupt, "a number stands"),
        (field(1, field(1, b"\xff")), CheckpointCorrupt, "utf-8"),
        (field(1, field(2, b"ab")), CheckpointCorrupt, "SentencePiece"),
        (PIECE + KEEPS_SPACES, UnsupportedCheckpoint, "no BPE"),
        (PIECE + BPE, UnsupportedCheckpoint, "changes"),
        (PIECE + BPE + field(3, field(4, 0) + field(2, b"map")), UnsupportedCheckpoint, "changes"),
    ],
)
def test_files_that_are_something_else(tmp_path, raw, fault, message):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(raw)
    with pytest.raises(fault, match=message):
        read_spm_file(path)


def test_the_smallest_file(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(PIECE + BPE + KEEPS_SPACES)
    assert read_spm_file(path).typed.tokens == ["a"]


def test_broken_files_are_refused_or_read(tmp_path):
    sound = FILE.read_bytes()
    path = tmp_path / "tokenizer.model"
    num_refused = 0
    for seed in range(200):
        draw = random.Random(seed)
        raw = bytearray(sound[: draw.randrange(len(sound))] if seed % 2 else sound)
        for _ in range(draw.randint(0, 5)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        path.write_bytes(raw)
        try:
            read_spm_file(path)
        except CheckpointError:
            num_refused += 1
    assert 50 < num_refused < 200
