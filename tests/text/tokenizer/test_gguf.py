# SPDX-License-Identifier: Apache-2.0
"""GGUF's vocabularies: special tokens, ends, and files that contradict themselves."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.text.corpus import make_strings
from tests.text.tokenizer.vocabularies import CONTROL, GOLDEN_DIR, bpe_vocabulary, write_bpe_gguf
from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, Metadata, open_checkpoint
from tokenlight.text import Tokenizer


@pytest.fixture(scope="module")
def tiny_checkpoint(tmp_path_factory) -> Checkpoint:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return open_checkpoint(write_bpe_gguf(path, "smollm"))


@pytest.fixture(scope="module")
def tiny(tiny_checkpoint) -> Tokenizer:
    return Tokenizer.from_checkpoint(tiny_checkpoint)


def changed(checkpoint: Checkpoint, **values: object) -> Checkpoint:
    """The checkpoint with other tokenizer values; None takes one away."""
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.gguf is not None
    metadata = dict(checkpoint.tokenizer.gguf)
    for name, value in values.items():
        metadata.pop(f"tokenizer.ggml.{name}", None)
        if value is not None:
            metadata[f"tokenizer.ggml.{name}"] = value
    source = dataclasses.replace(
        checkpoint.tokenizer, gguf=Metadata(Path("changed.gguf"), metadata)
    )
    return dataclasses.replace(checkpoint, tokenizer=source)


def test_default_model_ids_are_llama_cpps(tokenizer):
    golden = json.loads((GOLDEN_DIR / "smollm2_ids.json").read_text())
    assert len(golden) > 100
    for text, ids in golden:
        assert tokenizer.encode(text) == ids, repr(text)


def test_default_model_round_trips(tokenizer):
    for text in make_strings(500, seed=11, specials=["<|im_start|>", "<|im_end|>"]):
        assert tokenizer.decode(tokenizer.encode(text), with_special=True) == text


def test_special_tokens_are_read_or_left_as_text(tiny):
    tokens, _ = bpe_vocabulary()
    assert tiny.encode("<|im_start|>") == [tokens.index("<|im_start|>")]
    as_text = tiny.encode("<|im_start|>", parse_special=False)
    assert not {tokens.index(token) for token in CONTROL} & set(as_text)
    assert tiny.decode(as_text) == "<|im_start|>"


def test_user_defined_tokens_are_text_that_is_always_read(tiny):
    tokens, _ = bpe_vocabulary()
    for parse_special in (True, False):
        ids = tiny.encode("a<tool_call>b", parse_special=parse_special)
        assert tokens.index("<tool_call>") in ids
    assert tiny.decode([tokens.index("<tool_call>")]) == "<tool_call>"
    assert not tiny.is_special(tokens.index("<tool_call>"))


def test_special_tokens_have_no_text_unless_asked_for(tiny):
    tokens, _ = bpe_vocabulary()
    ids = [tokens.index("<|im_start|>"), *tiny.encode("hi"), tokens.index("<|im_end|>")]
    assert tiny.decode(ids) == "hi"
    assert tiny.decode(ids, with_special=True) == "<|im_start|>hi<|im_end|>"


def test_ids_outside_the_vocabulary_have_no_bytes(tiny):
    assert tiny.token_bytes(tiny.vocab_size) == b""
    assert tiny.token_bytes(-1) == b""
    assert tiny.decode([1 << 30, *tiny.encode("hi")]) == "hi"


def test_lone_surrogates_are_replacement_characters(tiny):
    assert tiny.encode("a\ud83db") == tiny.encode("a\ufffdb")
    assert tiny.encode("\ud83d\ude00") == tiny.encode("😀")


@pytest.mark.parametrize(
    ("pre", "says", "asked", "has"),
    [
        ("smollm", None, None, False),
        ("llama-bpe", None, None, True),
        ("llama-bpe", False, None, False),
        ("smollm", True, None, True),
        ("smollm", True, False, False),
        ("smollm", False, True, True),
    ],
)
def test_begin_of_text(tiny_checkpoint, pre, says, asked, has):
    tokenizer = Tokenizer.from_checkpoint(changed(tiny_checkpoint, pre=pre, add_bos_token=says))
    bare = tokenizer.encode("hi", add_bos=False)
    expected = [tokenizer.bos_token_id, *bare] if has else bare
    assert tokenizer.encode("hi", add_bos=asked) == expected


def test_no_begin_of_text_where_the_vocabulary_has_none(tiny_checkpoint):
    without = dataclasses.replace(tiny_checkpoint, bos_token_id=None)
    tokenizer = Tokenizer.from_checkpoint(without)
    assert tokenizer.encode("hi", add_bos=True) == tokenizer.encode("hi", add_bos=False)


def test_answers_end_at_every_known_end(tiny):
    tokens, _ = bpe_vocabulary()
    ends = {tokens.index(token) for token in ("<|im_end|>", "<|endoftext|>", "</s>")}
    assert set(tiny.eos_token_ids) == ends
    assert tiny.eos_token_ids[0] == tokens.index("<|im_end|>")


def test_default_model_ends(tokenizer, checkpoint):
    assert tokenizer.eos_token_ids == (2, 0)
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"model": None}, "tokenizer.ggml.model"),
        ({"tokens": 3}, "a list of strings"),
    ],
)
def test_missing_and_wrong_values_are_named(tiny_checkpoint, values, message):
    with pytest.raises(CheckpointCorrupt, match=message):
        Tokenizer.from_checkpoint(changed(tiny_checkpoint, **values))


def test_merges_that_do_not_fit_are_refused(tiny_checkpoint, tokenizer, checkpoint):
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.gguf is not None
    others = checkpoint.tokenizer.gguf["tokenizer.ggml.merges"]
    with pytest.raises(CheckpointCorrupt, match="merges do not fit"):
        Tokenizer.from_checkpoint(changed(tiny_checkpoint, merges=others))
    types = checkpoint.tokenizer.gguf["tokenizer.ggml.token_type"]
    with pytest.raises(CheckpointCorrupt, match="49152 token types"):
        Tokenizer.from_checkpoint(changed(tiny_checkpoint, token_type=types))


def test_end_tokens_beyond_the_vocabulary_are_refused(tiny_checkpoint):
    broken = dataclasses.replace(tiny_checkpoint, eos_token_ids=(100_000,))
    with pytest.raises(CheckpointCorrupt, match="token 100000"):
        Tokenizer.from_checkpoint(broken)


def test_unknown_kinds_are_named(tiny_checkpoint):
    with pytest.raises(UnsupportedCheckpoint, match="'bert'"):
        Tokenizer.from_checkpoint(changed(tiny_checkpoint, model="bert"))
    with pytest.raises(UnsupportedCheckpoint, match="no tokenizer"):
        Tokenizer.from_checkpoint(dataclasses.replace(tiny_checkpoint, tokenizer=None))
