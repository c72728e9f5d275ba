# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's BPE (Llama 2, Mistral, Gemma) on the Rust library: scores become merges.

SentencePiece joins the pair whose piece scores highest, the leftmost of equals; a BPE joins the
pair that stands first in its list. So every way to make a piece of two others is a merge, in the
order of scores.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import models, normalizers

from tokenlight.text.tokenizer.codec import Codec
from tokenlight.text.tokenizer.typed_tokens import SPECIAL, TokenType, TypedTokens
from tokenlight.text.tokenizer.vocabulary import Vocabulary

SPACE = "\u2581"
"""How pieces write a blank."""
# A piece that reaches over a word's end. A text that is begun with a blank cannot be cut there at
# all: what is behind the cut would be given one more.
_WORD_END = re.compile(rf"[A-Za-z]{SPACE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePieceModel:
    """A vocabulary with scores."""

    typed: TypedTokens
    scores: Sequence[float]
    adds_space: bool
    """Whether a text, and what follows a special token, is read with one more blank before it."""

    def make_codec(self) -> Codec:
        pieces = self.typed.tokens
        unknown = self.typed.ids(TokenType.UNKNOWN)
        model = models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            self._merges(),
            unk_token=pieces[unknown[0]] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
        blanks: normalizers.Normalizer = normalizers.Replace(" ", SPACE)
        if self.adds_space:
            blanks = normalizers.Sequence([normalizers.Prepend(SPACE), blanks])
        return Codec.make(
            model,
            normalizer=blanks,
            pre_tokenizer=None,
            user_defined=self.typed.user_defined(),
            special=self.typed.special(),
            cuts_words=not self.adds_space and not any(map(_WORD_END.search, pieces)),
        )

    def make_vocabulary(self) -> Vocabulary:
        plain = self.typed.plain()
        for i in self.typed.ids(TokenType.BYTE):
            byte = byte_of(self.typed.tokens[i])
            if byte is not None:
                plain[i] = byte
        return Vocabulary(piece_bytes(self.typed.tokens, plain), self.typed.ids(*SPECIAL))

    def _merges(self) -> list[tuple[str, str]]:
        # Control pieces are not made of letters: text that spells one stays text.
        text_ids = self.typed.ids(TokenType.NORMAL, TokenType.UNUSED)
        known = {self.typed.tokens[i] for i in text_ids}
        merges = []
        for i in sorted(text_ids, key=self.scores.__getitem__, reverse=True):
            piece = self.typed.tokens[i]
            # Of several ways to make one piece, the longer left part first: transformers' order.
            for cut in range(len(piece) - 1, 0, -1):
                if piece[:cut] in known and piece[cut:] in known:
                    merges.append((piece[:cut], piece[cut:]))
        return merges


def piece_bytes(pieces: Sequence[str], plain: Mapping[int, bytes]) -> list[bytes]:
    """The bytes of pieces; those of `plain` are not written in SentencePiece's way."""
    return [
        plain[i] if i in plain else piece.replace(SPACE, " ").encode()
        for i, piece in enumerate(pieces)
    ]


def byte_of(piece: str) -> bytes | None:
    """The byte that a byte piece, `<0x0A>`, stands for; None for another piece."""
    if len(piece) != 6 or not piece.startswith("<0x") or piece[5] != ">":
        return None
    try:
        return bytes.fromhex(piece[3:5])
    except ValueError:
        return None
