# SPDX-License-Identifier: Apache-2.0
"""Half a surrogate pair in JSON is U+FFFD, and nothing else changes."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tokenlight.base.surrogates import replace_lone_surrogates, replace_lone_surrogates_in_bytes

HALVES = st.integers(0xD800, 0xDFFF).map(lambda unit: f"\\u{unit:04x}")
PIECES = st.lists(
    st.one_of(HALVES, HALVES.map(str.upper).map(lambda s: s.replace("U", "u")), st.sampled_from(
        ["\\\\", "\\n", "\\u0041", "\\\\ud83d", "ud83d", "\\ud83d\\ude00", "x", "😀"]
    ))
)  # fmt: skip


@given(PIECES)
def test_texts_are_what_utf_16_reads(pieces: list[str]) -> None:
    written = '"' + "".join(pieces) + '"'
    units = json.loads(written).encode("utf-16-le", "surrogatepass")
    wanted = units.decode("utf-16-le", "replace")
    mended = replace_lone_surrogates_in_bytes(written.encode())
    assert json.loads(replace_lone_surrogates(written)) == wanted
    assert msgspec.json.decode(mended) == wanted


def test_what_has_none_is_as_it_was() -> None:
    sound = r'{"a": "\ud83d\ude00 \\ud83d \\\\udc00 \u00e9"}'
    assert replace_lone_surrogates(sound) == sound
    assert replace_lone_surrogates_in_bytes(sound.encode()) == sound.encode()
