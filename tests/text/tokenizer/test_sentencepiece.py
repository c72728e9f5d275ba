# SPDX-License-Identifier: Apache-2.0
"""SentencePiece vocabularies give transformers' ids (llama.cpp's are in test_golden_ids.py)."""

import pytest
from transformers import GemmaTokenizer, LlamaTokenizer
from transformers.tokenization_utils_base import generate_merges

from tests.text.corpus import make_strings
from tests.text.tokenizer.test_gguf import changed
from tests.text.tokenizer.vocabularies import SPM_NAMES, spm_vocabulary, write_spm_gguf
from tokenlight.base.errors import CheckpointCorrupt
from tokenlight.checkpoint import open_checkpoint
from tokenlight.text import Detokenizer, Tokenizer
from tokenlight.text.tokenizer.sentencepiece import byte_of


@pytest.fixture(scope="module", params=SPM_NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def spm_checkpoint(name, tmp_path_factory):
    return open_checkpoint(write_spm_gguf(tmp_path_factory.mktemp("spm") / f"{name}.gguf", name))


@pytest.fixture(scope="module")
def ours(spm_checkpoint):
    return Tokenizer.from_checkpoint(spm_checkpoint)


@pytest.fixture(scope="module")
def theirs(name):
    vocabulary = spm_vocabulary(name)
    vocab = {piece: i for i, piece in enumerate(vocabulary.pieces)}
    scores = dict(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    merges = generate_merges(vocab, scores)
    if name == "spm-llama":
        return LlamaTokenizer(vocab=vocab, merges=merges)
    return GemmaTokenizer(
        vocab=vocab, merges=merges, bos_token="<s>", eos_token="</s>", mask_token="<unk>"
    )


def test_ids_are_transformers(ours, theirs):
    num_compared = 0
    for text in make_strings(1500, seed=12):
        # Added pieces, here runs of blanks and line ends, are cut out first in GGUF files only;
        # SentencePiece adds a blank before a blank as well, transformers' Llama does not.
        if "  " in text or "\n" in text or text.startswith((" ", "\u2581")):
            continue
        num_compared += 1
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, parse_special=False, add_bos=False) == expected, repr(text)
    assert num_compared > 300


def test_whole_texts_come_back(ours):
    for text in make_strings(500, seed=13):
        assert ours.decode(ours.encode(text)) == text


def test_special_tokens_have_no_text(ours, theirs):
    for text in make_strings(200, seed=14):
        ids = ours.encode(text)
        assert ids[0] == ours.bos_token_id
        assert ours.decode([*ids, ours.eos_token_ids[0]]) == text


def test_an_answer_keeps_the_blank_that_parts_it_from_its_prompt(ours):
    prompt, answer = "The capital of France is", " Paris, hello"
    ids = ours.encode(prompt + answer)[len(ours.encode(prompt)) :]
    detokenizer = Detokenizer(ours)
    assert "".join([*(detokenizer.push([i]) for i in ids), detokenizer.flush()]) == answer


def test_bytes_of_a_character_are_put_together(ours):
    ids = ours.encode("𐐀", add_bos=False)
    assert len(ids) >= 4
    detokenizer = Detokenizer(ours)
    pieces = [detokenizer.push([i]) for i in ids]
    assert "".join(pieces).strip() == "𐐀"
    assert pieces[-1] == "𐐀"


def test_control_tokens_are_text_where_they_are_not_read(ours):
    assert ours.encode("</s>") == [*ours.encode(""), ours.eos_token_ids[0]]
    ids = ours.encode("</s>", parse_special=False)
    assert not set(ids[1:]) & set(ours.eos_token_ids)
    assert ours.decode(ids) == "</s>"


def test_scores_are_needed(spm_checkpoint):
    with pytest.raises(CheckpointCorrupt, match="scores"):
        Tokenizer.from_checkpoint(changed(spm_checkpoint, scores=None))


@pytest.mark.parametrize(
    ("piece", "byte"),
    [("<0x0A>", b"\n"), ("<0xff>", b"\xff"), ("<0xZZ>", None), ("<0x0A", None), ("a", None)],
)
def test_byte_pieces(piece, byte):
    assert byte_of(piece) == byte
