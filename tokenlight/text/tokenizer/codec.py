# SPDX-License-Identifier: Apache-2.0
"""Text to token ids: two faces of one Rust tokenizer, and what makes up a checkpoint's."""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from tokenlight.text.tokenizer.vocabulary import Vocabulary


class Codec:
    """Encodes text. Special tokens written in it are read as such, or as the text that they are.

    Both faces share one model, so the second costs no memory; calls from several threads are safe.
    """

    def __init__(
        self,
        model: models.Model,
        *,
        normalizer: normalizers.Normalizer | None,
        pre_tokenizer: pre_tokenizers.PreTokenizer | None,
        user_defined: Sequence[AddedToken],
        special: Sequence[AddedToken],
    ) -> None:
        self._model = model
        self._normalizer = normalizer
        self._pre_tokenizer = pre_tokenizer
        self._reads_text = self._face(user_defined)
        self._reads_special = self._face(user_defined)
        self._reads_special.add_special_tokens(list(special))

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        face = self._reads_special if parse_special else self._reads_text
        # A batch of one: unlike `encode` it leaves out offsets, in half the time.
        [encoding] = face.encode_batch_fast([_paired(text)], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def find_token(self, token_id: int) -> str | None:
        """A token as the vocabulary writes it."""
        token: str | None = self._reads_special.id_to_token(token_id)
        return token

    def _face(self, added: Sequence[AddedToken]) -> tokenizers.Tokenizer:
        face = tokenizers.Tokenizer(self._model)
        if self._normalizer is not None:
            face.normalizer = self._normalizer
        if self._pre_tokenizer is not None:
            face.pre_tokenizer = self._pre_tokenizer
        face.add_tokens(list(added))
        return face


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """A tokenizer as a reader of checkpoints found it."""

    codec: Codec
    vocabulary: Vocabulary
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    adds_bos: bool
    """Whether a text starts with the begin-of-text token unless the caller says otherwise."""
    adds_space: bool = False
    """Whether a text is read with one more blank before it, which decoding takes away again."""


def _paired(text: str) -> str:
    """Make the text one that UTF-8 can hold: a lone surrogate, which JSON can carry, is U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
