# SPDX-License-Identifier: Apache-2.0
"""Folders saved by transformers give transformers' ids and texts."""

import dataclasses
import json
import re

import pytest
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models
from transformers import (
    AutoTokenizer,
    Qwen2Tokenizer,
)

from tests.text.corpus import make_strings
from tests.text.tokenizer.saved import MAKERS, byte_level, folder, save
from tests.text.tokenizer.vocabularies import CONTROL, bpe_vocabulary
from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.config import ModelConfig
from tokenlight.text import ChatTemplate, Tokenizer


@pytest.fixture(scope="module", params=sorted(MAKERS))
def saved(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / request.param
    save(request.param, path)
    return path


@pytest.fixture(scope="module")
def theirs(saved):
    return AutoTokenizer.from_pretrained(saved)


@pytest.fixture(scope="module")
def ours(saved):
    return Tokenizer.from_checkpoint(folder(saved))


def test_ids_are_transformers(ours, theirs):
    specials = [*theirs.all_special_tokens, "<|tool|>", "<think>"]
    for text in make_strings(500, seed=15, specials=specials):
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_bos=False) == expected, repr(text)
        assert ours.encode(text) == theirs.encode(text), repr(text)


def test_ids_are_transformers_where_special_tokens_are_text(saved, ours):
    splitting = AutoTokenizer.from_pretrained(saved, split_special_tokens=True)
    for text in make_strings(300, seed=16, specials=["<|tool|>", "<think>", *CONTROL]):
        expected = splitting.encode(text, add_special_tokens=False)
        assert ours.encode(text, parse_special=False, add_bos=False) == expected, repr(text)


def test_texts_are_transformers(ours, theirs):
    for text in make_strings(300, seed=17, specials=["<|tool|>", "<think>"]):
        ids = theirs.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), repr(text)


def test_sizes_and_ends(ours, theirs):
    assert ours.vocab_size == len(theirs)
    assert ours.eos_token_ids == (theirs.eos_token_id,)
    assert ours.bos_token_id == theirs.bos_token_id
    tool, think = theirs.convert_tokens_to_ids(["<|tool|>", "<think>"])
    assert ours.is_special(tool)
    assert not ours.is_special(think)
    assert ours.token_bytes(think) == b"<think>"


def test_ends_of_the_checkpoint_come_first(saved):
    tokenizer = Tokenizer.from_checkpoint(folder(saved, eos=(5, 7)))
    assert tokenizer.eos_token_ids[:2] == (5, 7)


def test_the_template_knows_the_special_tokens(saved, theirs):
    template = "{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}"
    messages = [{"role": "user", "content": "hi"}]
    expected = theirs.apply_chat_template(messages, chat_template=template, tokenize=False)
    made = ChatTemplate.from_checkpoint(folder(saved, template=template))
    assert made.render(messages) == expected


def test_tokens_that_only_the_configuration_adds(tmp_path):
    byte_level(Qwen2Tokenizer).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    size = len(bpe_vocabulary()[0])
    late, broken = {"content": "<late>", "special": True}, {"content": ["<no>"]}
    config["added_tokens_decoder"] = {str(size): late, str(size + 1): broken, "\u00b2": late}
    file.write_text(json.dumps(config))
    tokenizer = Tokenizer.from_checkpoint(folder(tmp_path))
    assert tokenizer.encode("<late>") == [size]
    assert tokenizer.is_special(size)


def test_training_lengths_are_forgotten(tmp_path):
    made = byte_level(Qwen2Tokenizer)
    made.save_pretrained(tmp_path)
    rust = RustTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rust.enable_truncation(4)
    rust.enable_padding(length=64)
    rust.save(str(tmp_path / "tokenizer.json"))
    text = "one two three four five six seven"
    tokenizer = Tokenizer.from_checkpoint(folder(tmp_path))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_faulty_folders_are_named(tmp_path):
    with pytest.raises(UnsupportedCheckpoint, match=r"neither tokenizer\.json") as without:
        Tokenizer.from_checkpoint(folder(tmp_path))
    (named,) = re.findall(r"ModelConfig\.(\w+)", str(without.value))
    assert named in {field.name for field in dataclasses.fields(ModelConfig)}
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(CheckpointCorrupt, match=r"tokenizer\.json"):
        Tokenizer.from_checkpoint(folder(tmp_path))
    RustTokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(UnsupportedCheckpoint, match="WordPiece"):
        Tokenizer.from_checkpoint(folder(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(CheckpointCorrupt, match="not a JSON object"):
        Tokenizer.from_checkpoint(folder(tmp_path))
