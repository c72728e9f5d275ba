# SPDX-License-Identifier: Apache-2.0
"""Broken vocabularies are refused by name or work; none crashes or raises anything else."""

import random
import struct

import pytest

from tests.text.corpus import make_strings
from tests.text.tokenizer.test_gguf import changed
from tests.text.tokenizer.vocabularies import write_bpe_gguf, write_spm_gguf
from tokenlight.base.errors import CheckpointError
from tokenlight.checkpoint import open_checkpoint
from tokenlight.checkpoint.metadata import Array
from tokenlight.text import Tokenizer


def strings_array(texts):
    raw = [text.encode() for text in texts]
    return Array("string", len(raw), b"".join(struct.pack("<Q", len(r)) + r for r in raw))


def numbers_array(code, numbers):
    return Array(code, len(numbers), struct.pack(f"<{len(numbers)}{code}", *numbers))


def duplicates(draw, tokens):
    places = draw.sample(range(len(tokens)), 20)
    return {"tokens": [draw.choice(tokens) if i in places else t for i, t in enumerate(tokens)]}


def empties(draw, tokens):
    places = draw.sample(range(len(tokens)), 5)
    return {"tokens": ["" if i in places else t for i, t in enumerate(tokens)]}


def too_few(draw, tokens):
    return {"tokens": tokens[: draw.randrange(len(tokens))]}


def garbage(draw, tokens):
    characters = "\0\nA\u0120\U0001f600\uffff"
    return {"tokens": ["".join(draw.choices(characters, k=draw.randint(0, 6))) for _ in tokens]}


def wild_types(draw, tokens):
    return {"token_type": numbers_array("i", [draw.randint(-3, 9) for _ in tokens])}


def fractional_types(draw, tokens):
    return {"token_type": numbers_array("f", [8 * draw.random() for _ in tokens])}


def all_special(draw, tokens):
    return {"token_type": numbers_array("i", [draw.choice([3, 4]) for _ in tokens])}


def wild_merges(draw, tokens):
    pairs = [f"{draw.choice(tokens)} {draw.choice(tokens)}" for _ in range(20)]
    return {"merges": ["", " ", "  ", "a", "a b c", "\u0120 \u0120", *pairs]}


def wild_scores(draw, tokens):
    scores = [float("nan"), float("inf"), 0.0, -1e30]
    return {"scores": numbers_array("f", draw.choices(scores, k=len(tokens)))}


def other_model(draw, tokens):
    return {"model": draw.choice(["gpt2", "llama"])}


FAULTS = [
    duplicates, empties, too_few, garbage, wild_types, fractional_types, all_special, wild_merges,
    wild_scores, other_model,
]  # fmt: skip


@pytest.fixture(scope="module", params=["byte-level", "sentencepiece"])
def sound(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "sound.gguf"
    if request.param == "byte-level":
        return open_checkpoint(write_bpe_gguf(path, "smollm"))
    return open_checkpoint(write_spm_gguf(path, "spm-llama"))


def test_broken_vocabularies_are_refused_or_work(sound):
    tokens = sound.tokenizer.gguf.get_strings("tokenizer.ggml.tokens")
    strings = make_strings(10, seed=4)
    num_refused = 0
    for seed in range(100):
        draw = random.Random(seed)
        values = {}
        for fault in draw.sample(FAULTS, draw.randint(1, 2)):
            values |= fault(draw, tokens)
        values = {k: strings_array(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            tokenizer = Tokenizer.from_checkpoint(changed(sound, **values))
        except CheckpointError:
            num_refused += 1
            continue
        for text in strings:
            tokenizer.decode(tokenizer.encode(text))
            tokenizer.decode(tokenizer.encode(text, parse_special=False))
    assert 10 < num_refused < 100
