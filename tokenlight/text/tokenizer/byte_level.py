# SPDX-License-Identifier: Apache-2.0
"""The printable stand-ins of byte-level BPE: vocabularies write each byte as one character.

Printable Latin-1 bytes stand for themselves; the 68 others are counted up from U+0100.
"""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

# Stand-in to the Latin-1 character of its byte; U+FFFF marks what stands for none.
_BYTE_OF = {byte: byte for byte in _PRINTABLE} | {0x100 + i: b for i, b in enumerate(_OTHERS)}
_NO_BYTE = dict.fromkeys(_OTHERS, 0xFFFF)
_TO_LATIN_1 = _NO_BYTE | _BYTE_OF


def find_bytes(text: str) -> bytes | None:
    """The bytes that `text` stands for; None when a character stands for none."""
    try:
        return text.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return None
