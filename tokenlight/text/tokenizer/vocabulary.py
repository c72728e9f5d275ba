# SPDX-License-Identifier: Apache-2.0
"""The bytes of every token, by id: what detokenising is made of, in two flat buffers."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from tokenlight.text.tokenizer.byte_level import find_bytes


class Vocabulary:
    """Tokens' bytes. An id that no token has (a model's table may be padded) has no bytes."""

    def __init__(self, pieces: Sequence[bytes], special_ids: Iterable[int]) -> None:
        self._bytes = b"".join(pieces)
        self._starts = array("I", accumulate(map(len, pieces), initial=0))
        self.special_ids = frozenset(special_ids)
        """Tokens that steer the model (turns, ends, tools) and are no text."""

    def __len__(self) -> int:
        return len(self._starts) - 1

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self):
            return b""
        return self._bytes[self._starts[token_id] : self._starts[token_id + 1]]


def byte_level_pieces(tokens: Sequence[str], plain: Mapping[int, bytes]) -> list[bytes]:
    """The bytes of a byte-level BPE's tokens.

    Args:
        tokens: as the vocabulary writes them.
        plain: the bytes of those that are not written in stand-ins, by id.
    """
    written = ["" if i in plain else token for i, token in enumerate(tokens)]
    # One translation for all: a stand-in is one character and becomes one byte.
    joined = find_bytes("".join(written))
    if joined is None:
        pieces = [token.encode() if (p := find_bytes(token)) is None else p for token in written]
    else:
        ends = accumulate(map(len, written))
        pieces = [joined[end - len(t) : end] for t, end in zip(written, ends, strict=True)]
    for token_id, piece in plain.items():
        pieces[token_id] = piece
    return pieces
