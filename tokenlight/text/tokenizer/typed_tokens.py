# SPDX-License-Identifier: Apache-2.0
"""Tokens with their types, as GGUF and SentencePiece number them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tokenizers import AddedToken


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (TokenType.CONTROL, TokenType.UNKNOWN)
"""Types of tokens that steer the model and are no text."""


@dataclass(frozen=True, slots=True)
class TypedTokens:
    """A vocabulary. Ids are places in both lists; types need not be ones that we know."""

    tokens: Sequence[str]
    types: Sequence[int | float]

    def ids(self, *types: TokenType) -> list[int]:
        return [i for i, token_type in enumerate(self.types) if token_type in types]

    def user_defined(self) -> list[AddedToken]:
        """Tokens that are text, and that are looked for before all others."""
        return self._added(self.ids(TokenType.USER_DEFINED), is_special=False)

    def special(self) -> list[AddedToken]:
        return self._added(self.ids(*SPECIAL), is_special=True)

    def plain(self) -> dict[int, bytes]:
        """The bytes of the tokens that are written as they are, by id."""
        added = self.ids(*SPECIAL, TokenType.USER_DEFINED)
        plain = {i: self.tokens[i].encode() for i in added}
        return plain | dict.fromkeys(self.ids(TokenType.UNUSED), b"")

    def _added(self, ids: Sequence[int], *, is_special: bool) -> list[AddedToken]:
        texts = [self.tokens[i] for i in ids if self.tokens[i]]
        return [AddedToken(text, special=is_special, normalized=False) for text in texts]
