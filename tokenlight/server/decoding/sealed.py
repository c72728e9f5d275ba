# SPDX-License-Identifier: Apache-2.0
"""Reasoning in a wrapping that clients hand back unread.

Clients that may not show reasoning still send it back with the next turn: in the signature of a
thinking block (Messages), as encrypted content (Responses). It is packed, not secret: the reasoning
was this client's own already.
"""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = "tl1."
MAX_CHARS = 4 << 20
"""Of what is unpacked: a small wrapping must not become a huge text."""


def seal(text: str) -> str:
    packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
    return _MARK + base64.urlsafe_b64encode(packed).decode("ascii")


def unseal(sealed: str) -> str | None:
    """The text; None for what this server did not seal."""
    if not sealed.startswith(_MARK):
        return None
    try:
        packed = base64.urlsafe_b64decode(sealed[len(_MARK) :].encode("ascii"))
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, MAX_CHARS)
        if unpacker.unconsumed_tail or not unpacker.eof:
            return None
        return data.decode("utf-8", "surrogatepass")
    except (binascii.Error, zlib.error, UnicodeError):
        return None
