# SPDX-License-Identifier: Apache-2.0
"""Text to token ids: two faces of one Rust tokenizer, and what makes up a checkpoint's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from tokenlight.text.tokenizer.segments import MIN_SEGMENT_CHARS, Cuts, SegmentCache
from tokenlight.text.tokenizer.vocabulary import Vocabulary


class Codec:
    """Encodes text. Special tokens written in it are read as such, or as the text that they are.

    A long text whose special tokens are read is looked up piece by piece: what was seen before is
    not tokenised again. Calls from several threads are safe.
    """

    def __init__(
        self,
        *,
        reads_special: tokenizers.Tokenizer,
        reads_text: tokenizers.Tokenizer,
        cuts_words: bool,
    ) -> None:
        """Wrap two faces of one tokenizer.

        Args:
            reads_special: the one for which special tokens are tokens.
            reads_text: the one for which they are text.
            cuts_words: whether a word always ends before a blank between two letters.
        """
        self._reads_special = reads_special
        self._reads_text = reads_text
        cuts = Cuts(list(reads_special.get_added_tokens_decoder().values()), cuts_words=cuts_words)
        self._seen = SegmentCache(cuts, partial(_encode, reads_special))

    @classmethod
    def make(
        cls,
        model: models.Model,
        *,
        normalizer: normalizers.Normalizer | None,
        pre_tokenizer: pre_tokenizers.PreTokenizer | None,
        user_defined: Sequence[AddedToken],
        special: Sequence[AddedToken],
        cuts_words: bool,
    ) -> Self:
        """Put a tokenizer together. Both faces share the model: the second costs no memory."""
        reads_special = make_face(model, normalizer, pre_tokenizer, [*user_defined, *special])
        reads_text = make_face(model, normalizer, pre_tokenizer, user_defined)
        return cls(reads_special=reads_special, reads_text=reads_text, cuts_words=cuts_words)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        text = _paired(text)
        if parse_special and len(text) > MIN_SEGMENT_CHARS:
            return self._seen.encode(text)
        [ids] = _encode(self._reads_special if parse_special else self._reads_text, [text])
        return ids


def make_face(
    model: models.Model,
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    added: Sequence[AddedToken],
) -> tokenizers.Tokenizer:
    face = tokenizers.Tokenizer(model)
    if normalizer is not None:
        face.normalizer = normalizer
    if pre_tokenizer is not None:
        face.pre_tokenizer = pre_tokenizer
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


def _encode(face: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    # Unlike `encode` this leaves out offsets, in half the time, and uses all cores.
    encodings = face.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def _paired(text: str) -> str:
    """Make the text one that UTF-8 can hold: a lone surrogate, which JSON can carry, is U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
