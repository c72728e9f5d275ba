# SPDX-License-Identifier: Apache-2.0
"""Whatever the split, the pieces are the whole; no piece is cut inside a character."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from tests.models.tiny import byte_characters
from tokenlight.text import Detokenizer


def cut(items, sizes):
    """Split `items` into runs of `sizes`, over and over."""
    pieces, start = [], 0
    while start < len(items):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(items[start : start + size])
        start += size
    return pieces


@settings(deadline=None, max_examples=300)
@given(
    ids=st.lists(st.integers(min_value=0, max_value=49_200), max_size=60),
    sizes=st.lists(st.integers(min_value=1, max_value=7), min_size=1, max_size=5),
    with_special=st.booleans(),
)
def test_any_split_equals_the_whole(tokenizer, ids, sizes, with_special):
    detokenizer = Detokenizer(tokenizer, with_special=with_special)
    pieces = [detokenizer.push(run) for run in cut(ids, sizes)]
    assert "".join([*pieces, detokenizer.flush()]) == tokenizer.decode(
        ids, with_special=with_special, is_start=False
    )


@pytest.fixture(scope="module")
def ids_by_byte(tokenizer):
    return {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}


@settings(deadline=None, max_examples=300)
@given(raw=st.binary(max_size=24))
def test_broken_utf8_is_replaced_as_hugging_face_does(tokenizer, ids_by_byte, raw):
    stand_ins = byte_characters()
    known = bytes(byte for byte in raw if bytes([byte]) in ids_by_byte)
    theirs = decoders.ByteLevel().decode([stand_ins[byte] for byte in known])
    detokenizer = Detokenizer(tokenizer)
    ours = [detokenizer.push([ids_by_byte[bytes([byte])]]) for byte in known]
    assert "".join([*ours, detokenizer.flush()]) == theirs


@pytest.mark.parametrize("text", ["héllo wörld", "日本語テキスト", "👩\u200d💻🏳️\u200d🌈", "ok"])
def test_never_half_a_character(tokenizer, text):
    detokenizer = Detokenizer(tokenizer)
    seen = ""
    for token_id in tokenizer.encode(text):
        seen += detokenizer.push([token_id])
        assert text.startswith(seen)
    assert seen == text
    assert detokenizer.flush() == ""


def test_an_unfinished_character_is_replaced_at_the_end(tokenizer):
    first = tokenizer.encode("😀")[:-1]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(first) == ""
    assert detokenizer.flush() == "\ufffd"


def test_special_tokens_between_the_bytes_of_a_character_do_not_part_them(tokenizer):
    ids = tokenizer.encode("😀")
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push([i, 2]) for i in ids)
    assert text == "😀"


def test_a_token_costs_the_same_however_many_came_before(tokenizer):
    ids = tokenizer.encode("The quick brown fox jumps over the lazy dog. " * 40)
    detokenizer = Detokenizer(tokenizer)

    def push_all():
        start_s = time.process_time()
        for _ in range(20):
            for token_id in ids:
                detokenizer.push([token_id])
        return time.process_time() - start_s

    first_s = push_all()
    for _ in range(8):
        last_s = push_all()
    assert last_s < 3 * first_s + 0.05
