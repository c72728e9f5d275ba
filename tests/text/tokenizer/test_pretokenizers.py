# SPDX-License-Identifier: Apache-2.0
"""Words are cut as llama.cpp, transformers and the models' published patterns cut them."""

import time
import unicodedata
from pathlib import Path

import pytest
import regex
import transformers
from tokenizers import AddedToken
from transformers.convert_slow_tokenizer import TikTokenConverter

from tests.text.corpus import make_strings
from tests.text.tokenizer.golden_ids import load_golden
from tests.text.tokenizer.vocabularies import (
    SPM_NAMES,
    USER_DEFINED,
    bpe_vocabulary,
    write_bpe_gguf,
)
from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import open_checkpoint
from tokenlight.text import Tokenizer
from tokenlight.text.tokenizer.byte_level import find_bytes
from tokenlight.text.tokenizer.pretokenizers import (
    PRE_TOKENIZER_KINDS,
    get_kind,
    make_pre_tokenizer,
)

GOLDEN = load_golden()
KINDS = sorted(set(GOLDEN) - set(SPM_NAMES))


def open_kind(directory: Path, kind: str) -> Tokenizer:
    path = write_bpe_gguf(directory / f"{kind}.gguf", kind)
    return Tokenizer.from_checkpoint(open_checkpoint(path))


def words(kind: str, text: str) -> list[str]:
    pieces = make_pre_tokenizer(get_kind(kind)).pre_tokenize_str(text)
    raw = [find_bytes(piece) for piece, _ in pieces]
    return [piece.decode() for piece in raw if piece is not None]


def test_golden_has_every_set_of_patterns():
    assert {PRE_TOKENIZER_KINDS[name] for name in KINDS} == set(PRE_TOKENIZER_KINDS.values())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt-2", "GPT2Tokenizer"),
        ("smollm", "CohereTokenizer"),
        ("qwen2", "Qwen2Tokenizer"),
        ("qwen35", "Qwen3_5Tokenizer"),
    ],
)
def test_ids_are_transformers(kind, name, tmp_path):
    tokens, merges = bpe_vocabulary()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    vocab = {token: i for i, token in enumerate(tokens)}
    theirs = getattr(transformers, name)(vocab=vocab, merges=pairs)
    theirs.add_tokens([AddedToken(token, normalized=False) for token in USER_DEFINED])
    ours = open_kind(tmp_path, kind)
    for text in make_strings(600, seed=5):
        # Their Qwen tokenizers compose characters first; GGUF files say nothing of that.
        text = unicodedata.normalize("NFC", text)
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, parse_special=False, add_bos=False) == expected, repr(text)


def test_llama_words_are_transformers():
    theirs = TikTokenConverter().pattern
    for text in make_strings(600, seed=6):
        assert words("llama-bpe", text) == cut(theirs, text), repr(text)


# As the models' authors published them: tekken.json, o200k, Kimi's tokenization_kimi.py.
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HAN_FREE_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
HAN_FREE_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PUBLISHED = {
    "tekken": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt-4o": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "kimi-k2": (
        rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{HAN_FREE_UPPER}*{HAN_FREE_LOWER}+{SUFFIX}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{HAN_FREE_UPPER}+{HAN_FREE_LOWER}*{SUFFIX}|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


@pytest.mark.parametrize("kind", sorted(PUBLISHED))
def test_words_are_the_published_patterns(kind):
    for text in make_strings(600, seed=8):
        assert words(kind, text) == cut(PUBLISHED[kind], text), repr(text)


def cut(pattern: str, text: str) -> list[str]:
    """All matches and the gaps between them, by the `regex` module."""
    pieces, end = [], 0
    for match in regex.compile(pattern, regex.V1).finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [piece for piece in [*pieces, text[end:]] if piece]


HOSTILE = {
    "blanks": " ", "tabs": "\t", "line ends": "\n", "blank lines": " \n", "small": "a",
    "capitals": "A", "both": "Aa", "digits": "1", "han": "\u4e2d", "quotes": "'", "marks": "\u0301",
    "symbols": "!/", "wide blanks": "\u3000",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_takes_quadratic_time(kind):
    pre_tokenizer = make_pre_tokenizer(get_kind(kind))
    for name, unit in HOSTILE.items():
        text = unit * (100_000 // len(unit)) + "x"
        start_s = time.process_time()
        pre_tokenizer.pre_tokenize_str(text)
        # Linear: a tenth of a second. Quadratic: half a minute and more.
        assert time.process_time() - start_s < 5, name


def test_an_unknown_kind_is_named():
    with pytest.raises(UnsupportedCheckpoint, match=r"'elvish'.*llama-bpe.*smollm"):
        get_kind("elvish")
