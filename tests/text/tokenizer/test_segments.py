# SPDX-License-Identifier: Apache-2.0
"""Ids put together of remembered segments are the ids of the whole, and cost no tokenising."""

import random
import threading
import time

import pytest
from tokenizers import AddedToken

from tests.text.corpus import make_strings
from tests.text.tokenizer.golden_ids import golden_names, write_vocabulary
from tests.text.tokenizer.saved import MAKERS, folder, save
from tests.text.tokenizer.vocabularies import CONTROL, SPM_NAMES, USER_DEFINED, spm_vocabulary
from tokenlight.checkpoint import open_checkpoint
from tokenlight.text import Tokenizer
from tokenlight.text.tokenizer import segments
from tokenlight.text.tokenizer.segments import Cuts, SegmentCache


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


def long_texts(specials, num_texts=8):
    draw = random.Random(3)
    strings = make_strings(800, seed=21, specials=specials)
    joints = ["", "\n", ".\n", " a b ", " \n", "end of", "x y"]
    for _ in range(num_texts):
        yield "".join(draw.choice(joints) + draw.choice(strings) for _ in range(100))


def check(tokenizer, specials, monkeypatch):
    num_cut = 0
    for index, text in enumerate(long_texts(specials)):
        # Short segments try many cuts; whether it is cut at all must change nothing.
        monkeypatch.setattr(segments, "MIN_SEGMENT_CHARS", len(text))
        whole = tokenizer.encode(text)
        monkeypatch.setattr(segments, "MIN_SEGMENT_CHARS", (1, 5, 40, 300)[index % 4])
        assert tokenizer.encode(text) == whole
        assert tokenizer.encode(text) == whole
        num_cut += len(tokenizer._codec._seen._cuts.segments(text)) - 1
    return num_cut


@pytest.mark.parametrize("name", golden_names())
def test_ids_of_gguf_vocabularies_do_not_depend_on_cuts(name, tmp_path, monkeypatch):
    specials = spm_vocabulary(name).specials if name in SPM_NAMES else CONTROL + USER_DEFINED
    path = write_vocabulary(tmp_path / "tiny.gguf", name)
    tokenizer = Tokenizer.from_checkpoint(open_checkpoint(path))
    assert check(tokenizer, specials, monkeypatch) > (50 if name in SPM_NAMES else 500)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_ids_of_folders_do_not_depend_on_cuts(name, tmp_path, monkeypatch):
    save(name, tmp_path)
    tokenizer = Tokenizer.from_checkpoint(folder(tmp_path))
    assert check(tokenizer, ["<|tool|>", "<think>", "<s>"], monkeypatch) > 50


def test_a_prompt_that_was_seen_is_not_tokenised_again(tokenizer):
    turn = "<|im_start|>user\n" + "Please read this file and tell me what it does. " * 90
    prompt = turn * 90

    def cost_s(text):
        start_s = time.process_time()
        ids = tokenizer.encode(text)
        return time.process_time() - start_s, ids

    first_s, first = cost_s(prompt)
    seen_s, seen = min(cost_s(prompt + f"And more {i}<|im_end|>\n") for i in range(5))
    assert len(first) > 80_000
    assert seen[: len(first) - 1] == first[:-1]
    assert seen_s < 0.25 * first_s


def test_only_new_segments_are_encoded():
    asked = []

    def encode(texts):
        asked.append(texts)
        return [[len(text)] for text in texts]

    cache = SegmentCache(Cuts([special("<s>")], cuts_words=False), encode)
    turns = [f"<s>{i}" + "x" * segments.MIN_SEGMENT_CHARS for i in range(3)]
    assert cache.encode("".join(turns[:2])) == [len(turn) for turn in turns[:2]]
    assert cache.encode("".join(turns)) == [len(turn) for turn in turns]
    assert cache.encode(turns[0] + turns[0]) == [len(turns[0])] * 2
    assert asked == [turns[:2], turns[2:]]


def test_texts_with_a_common_beginning_have_the_ids_of_texts_alone(tmp_path, monkeypatch):
    """Whatever they have in common, wherever they part: at a cut, inside a special token."""
    monkeypatch.setattr(segments, "MIN_WHOLE_CHARS", 0)
    monkeypatch.setattr(segments, "MIN_SEGMENT_CHARS", 40)
    monkeypatch.setattr(segments, "MAX_WHOLES", 3)
    save(min(MAKERS), tmp_path)
    tokenizer, alone = (Tokenizer.from_checkpoint(folder(tmp_path)) for _ in range(2))
    draw = random.Random(5)
    texts = list(long_texts(["<|tool|>", "<think>"], num_texts=2))
    text, num_common = texts[0], 0
    for _ in range(400):
        place = draw.randrange(len(text))
        length = draw.choice((5, 60, 900))
        text = text[:place] + draw.choice(texts)[place : place + length]
        num_common += max(w.num_common(text, 2) for w in tokenizer._codec._seen._wholes or [EMPTY])
        monkeypatch.setattr(segments, "MIN_WHOLE_CHARS", 1 << 30)
        expected = alone.encode(text)
        monkeypatch.setattr(segments, "MIN_WHOLE_CHARS", 0)
        assert tokenizer.encode(text) == expected
        if len(text) < 500:
            text = draw.choice(texts)
    assert num_common > 1000
    assert 0 < len(tokenizer._codec._seen._wholes) <= 3


EMPTY = segments.Whole("", [], [])


def test_whole_texts_are_bounded_by_their_tokens(monkeypatch):
    monkeypatch.setattr(segments, "MIN_WHOLE_CHARS", 0)
    monkeypatch.setattr(segments, "MAX_WHOLE_TOKENS", 100)
    cache = SegmentCache(Cuts([], cuts_words=False), lambda texts: [[0] * len(t) for t in texts])
    for text in ("a" * 40, "b" * 40, "c" * 40, "d" * 101):
        assert len(cache.encode(text)) == len(text)
        assert sum(len(whole.ids) for whole in cache._wholes) <= 100
    assert cache._wholes == []


def test_what_was_not_used_for_long_is_forgotten(monkeypatch):
    monkeypatch.setattr(segments, "MAX_CACHED_CHARS", 100)
    asked = []

    def encode(texts):
        asked.extend(texts)
        return [[0] for _ in texts]

    cache = SegmentCache(Cuts([], cuts_words=False), encode)
    for text in ("a" * 40, "b" * 40, "a" * 40, "c" * 40, "a" * 40, "b" * 40, "d" * 101, "a"):
        cache.encode(text)
    assert [text[0] for text in asked] == ["a", "b", "c", "b", "d", "a"]
    assert sum(map(len, cache._ids)) <= 100


@pytest.mark.parametrize(
    ("added", "cuts"),
    [
        ([special("<s>")], True),
        ([special("<s>", lstrip=True)], False),
        ([special("<s>", single_word=True)], False),
        ([AddedToken("<s>", special=True, normalized=True)], False),
        ([AddedToken("<s>", special=False, normalized=False)], False),
        ([special("<s>"), special("a<s>")], False),
        ([special("<s>"), special("<s>>")], False),
        ([special("<s>"), special("[<")], False),
        ([special("<s>"), special("</s>")], True),
    ],
)
def test_which_special_tokens_may_be_cut_before(added, cuts):
    text = "x" * segments.MIN_SEGMENT_CHARS + "<s>y"
    found = Cuts(added, cuts_words=False).segments(text)
    assert found == ([text[:-4], "<s>y"] if cuts else [text])


@pytest.mark.parametrize(
    ("added", "cuts"),
    [
        ([], True),
        ([special("<s>", rstrip=True)], True),
        ([special("<s>", lstrip=True)], False),
        ([special("word", single_word=True)], False),
        ([AddedToken("new york")], False),
        ([AddedToken("word ")], False),
    ],
)
def test_when_words_may_be_parted(added, cuts):
    text = "x" * segments.MIN_SEGMENT_CHARS + " y"
    found = Cuts(added, cuts_words=True).segments(text)
    assert found == ([text[:-2], " y"] if cuts else [text])


def test_a_text_without_cuts_is_searched_once():
    cuts = Cuts([special(f"<|{i}|>") for i in range(500)], cuts_words=True)
    for unit in ("<", "<|", "x\n", "<|1|", " ", "中"):
        start_s = time.process_time()
        cuts.segments(unit * (1_000_000 // len(unit)))
        assert time.process_time() - start_s < 3, unit


def test_threads_share_the_cache(tokenizer):
    texts = list(long_texts(["<|im_start|>"], num_texts=6))
    whole = [tokenizer.encode(text) for text in texts]
    wrong = []

    def encode_all(seed):
        for index in random.Random(seed).choices(range(6), k=20):
            if tokenizer.encode(texts[index]) != whole[index]:
                wrong.append(index)

    threads = [threading.Thread(target=encode_all, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
