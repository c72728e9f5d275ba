# SPDX-License-Identifier: Apache-2.0
"""Ids are llama.cpp's for every kind of vocabulary: a part here, ten thousand strings in CI."""

import pytest

from tests.text.tokenizer.golden_ids import (
    CHUNK_STRINGS,
    NUM_STRINGS,
    digests,
    golden_names,
    golden_strings,
    load_golden,
    write_vocabulary,
)
from tokenlight.checkpoint import open_checkpoint
from tokenlight.text import Tokenizer


def check(name, num_strings, directory):
    path = write_vocabulary(directory / f"{name}.gguf", name)
    tokenizer = Tokenizer.from_checkpoint(open_checkpoint(path))
    ours = digests(
        golden_strings(name, num_strings),
        lambda text, special: tokenizer.encode(text, parse_special=special, add_bos=False),
    )
    assert ours == load_golden()[name][: num_strings // CHUNK_STRINGS]


def test_golden_has_every_vocabulary():
    assert sorted(load_golden()) == golden_names()


@pytest.mark.parametrize("name", golden_names())
def test_ids_are_llama_cpps(name, tmp_path):
    check(name, 4 * CHUNK_STRINGS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", golden_names())
def test_t_c8(name, tmp_path):
    """A hundred thousand strings over all vocabularies, special tokens among them."""
    check(name, NUM_STRINGS, tmp_path)


def test_a_changed_id_is_seen():
    strings = golden_strings("smollm", 2 * CHUNK_STRINGS)
    one = digests(strings, lambda text, _: [len(text)])
    other = digests(strings, lambda text, _: [len(text) + (text == strings[-1])])
    assert one[0] == other[0]
    assert one[1] != other[1]
