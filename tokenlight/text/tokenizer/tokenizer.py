# SPDX-License-Identifier: Apache-2.0
"""The tokenizer's face: text to ids and back, whatever the checkpoint's vocabulary is."""

from collections.abc import Iterable
from typing import Self

from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint
from tokenlight.text.tokenizer.codec import TokenizerParts
from tokenlight.text.tokenizer.gguf import gguf_parts
from tokenlight.text.tokenizer.hugging_face import hugging_face_parts


class Tokenizer:
    """Text to token ids and back. Safe to use from several threads."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._codec = parts.codec
        self._vocabulary = parts.vocabulary
        self.bos_token_id = parts.bos_token_id
        self.eos_token_ids = parts.eos_token_ids
        """Tokens that end an answer."""
        self.adds_bos = parts.adds_bos
        self._adds_space = parts.adds_space

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Make the checkpoint's own tokenizer.

        Raises:
            CheckpointCorrupt: it contradicts itself.
            UnsupportedCheckpoint: there is none, or it is of a kind that we do not have.
        """
        source = checkpoint.tokenizer
        if source is None:
            raise UnsupportedCheckpoint(f"{checkpoint.path}: has no tokenizer")
        if source.gguf is not None:
            return cls(gguf_parts(checkpoint, source.gguf))
        return cls(hugging_face_parts(checkpoint, source.files))

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    def encode(
        self, text: str, *, parse_special: bool = True, add_bos: bool | None = None
    ) -> list[int]:
        """Tokenise.

        Args:
            text: any text; lone surrogates are read as U+FFFD.
            parse_special: whether "<|im_end|>" and the like are the special tokens that they name,
                or just text.
            add_bos: whether to begin with the begin-of-text token, where the vocabulary has one;
                None for what the checkpoint says. Chat templates write it themselves.
        """
        ids = self._codec.encode(text, parse_special=parse_special)
        if (self.adds_bos if add_bos is None else add_bos) and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        return ids

    def decode(
        self, token_ids: Iterable[int], *, with_special: bool = False, is_start: bool = True
    ) -> str:
        """The text of `token_ids`; what is no UTF-8 becomes U+FFFD.

        Args:
            token_ids: any ids; unknown ones have no text.
            with_special: whether special tokens are written out.
            is_start: whether the ids begin a text rather than go on with one; matters to
                vocabularies that begin every text with a blank.
        """
        hidden = frozenset() if with_special else self._vocabulary.special_ids
        pieces = (self._vocabulary.token_bytes(i) for i in token_ids if i not in hidden)
        text = b"".join(pieces).decode("utf-8", "replace")
        return text.removeprefix(" ") if is_start and self._adds_space else text

    def token_bytes(self, token_id: int) -> bytes:
        """A token's bytes, which need not be whole characters; empty for an unknown id."""
        return self._vocabulary.token_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether a token steers the model (turns, ends, tools) and is no text."""
        return token_id in self._vocabulary.special_ids
