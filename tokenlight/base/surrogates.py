# SPDX-License-Identifier: Apache-2.0
r"""Halves of surrogate pairs in JSON: `\ud83d` alone, where a client cut an emoji in two.

UTF-8 has no such character. Read as U+FFFD, a cut text does not end the session that it is in.
"""

import re

_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
# After an even number of backslashes, each pair of which is one escaped backslash: whole pairs, so
# that their second half is not met alone, or a half.
_HALF = rf"(?<!\\)((?:\\\\)*+)(?:((?:\\u{_HIGH}\\u{_LOW})++)|\\u(?:{_HIGH}|{_LOW}))"
_IN_TEXT, _IN_BYTES = re.compile(_HALF), re.compile(_HALF.encode())


def replace_lone_surrogates(json_text: str) -> str:
    """JSON text whose strings UTF-8 can hold."""
    if "\\u" not in json_text:
        return json_text
    return _IN_TEXT.sub(lambda found: found[0] if found[2] else f"{found[1]}\\ufffd", json_text)


def replace_lone_surrogates_in_bytes(data: bytes) -> bytes:
    """The same of JSON bytes."""
    if b"\\u" not in data:
        return data
    return _IN_BYTES.sub(lambda found: found[0] if found[2] else found[1] + b"\\ufffd", data)
