# SPDX-License-Identifier: Apache-2.0
"""However an answer's tokens are cut into pushes, its text and its ids end at the same place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.text import AnswerDecoder
from tokenlight.wire import TokenLogprobs

EOT = 256


class Bytes:
    """Token i is byte i; 256 steers the model."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == EOT else bytes([token_id])

    def is_special(self, token_id: int) -> bool:
        return token_id == EOT


def told(token_ids: list[int]) -> list[TokenLogprobs]:
    return [TokenLogprobs(-float(i), [], []) for i in token_ids]


def decode(token_ids: list[int], sizes: list[int], **options: object) -> tuple[object, ...]:
    """Pushed in runs of these sizes, the rest at once."""
    decoder = AnswerDecoder(Bytes(), **options)
    text, place = "", 0
    ids, logprobs = [], []
    for size in [*sizes, len(token_ids)]:
        run = token_ids[place : place + size]
        place += size
        text += decoder.push(run, told(run))
        more_ids, more_logprobs = decoder.take()
        ids += more_ids
        logprobs += more_logprobs
        if decoder.is_stopped:
            break
    else:
        text += decoder.flush()
    assert logprobs == told(ids)
    assert decoder.num_tokens == len(ids)
    return text, ids, decoder.matched_stop


TEXTS = st.text("aé世b.", max_size=12)


@given(TEXTS, st.lists(st.text("aé世b.", min_size=1, max_size=3), max_size=3), st.data())
def test_cuts_change_nothing_and_the_first_stop_ends_it(text, stops, data):
    ids = list(text.encode())
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=8))
    found = decode(ids, sizes, stops=stops)
    assert found == decode(ids, [1] * len(ids), stops=stops)
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert found == (text, ids, None)
        return
    delivered, kept, matched = found
    assert delivered + matched == text[: min(ends)]
    assert kept == list(text[: min(ends)].encode())


@pytest.mark.parametrize(("keeps_stop", "text"), [(False, "a"), (True, "a.b")])
def test_the_stop_is_kept_for_who_asks(keeps_stop, text):
    ids = list(b"a.bc")
    expected = (text, ids[:3], ".b")
    assert decode(ids, [], stops=[".b"], keeps_stop=keeps_stop) == expected


@pytest.mark.parametrize(("with_special", "text"), [(False, "ab"), (True, "a<end>b")])
def test_tokens_that_steer_are_shown_to_who_asks(with_special, text):
    ids = [97, EOT, 98]
    assert decode(ids, [], with_special=with_special) == (text, ids, None)


def test_a_flush_can_complete_a_stop():
    """Half a character becomes U+FFFD at the end."""
    decoder = AnswerDecoder(Bytes(), stops=["a\ufffd"])
    assert decoder.push([97, 0xC3]) == ""
    assert (decoder.flush(), decoder.matched_stop) == ("", "a\ufffd")
