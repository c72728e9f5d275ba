# SPDX-License-Identifier: Apache-2.0
"""Token ids to text as they come: never half a character, never two decodings of one token."""

import codecs
from collections.abc import Iterable

from tokenlight.text.tokenizer import Tokenizer

_make_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one answer, which goes on with its prompt.

    What all calls return together is `Tokenizer.decode(all_ids, is_start=False)`.
    """

    def __init__(self, tokenizer: Tokenizer, *, with_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._with_special = with_special
        self._decoder = _make_decoder("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The characters that these tokens complete; what may still become one is held back."""
        tokenizer = self._tokenizer
        pieces = [
            tokenizer.token_bytes(token_id)
            for token_id in token_ids
            if self._with_special or not tokenizer.is_special(token_id)
        ]
        return self._decoder.decode(b"".join(pieces))

    def flush(self) -> str:
        """End: U+FFFD for what never became a character."""
        return self._decoder.decode(b"", final=True)
