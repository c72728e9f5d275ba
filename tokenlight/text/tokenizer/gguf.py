# SPDX-License-Identifier: Apache-2.0
"""A tokenizer out of a GGUF file's metadata."""

from collections.abc import Sequence
from enum import IntEnum

from tokenizers import AddedToken, models

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, Metadata
from tokenlight.text.tokenizer.codec import Codec, TokenizerParts
from tokenlight.text.tokenizer.pretokenizers import get_kind, make_pre_tokenizer
from tokenlight.text.tokenizer.sentencepiece import SentencePieceModel, byte_of, piece_bytes
from tokenlight.text.tokenizer.vocabulary import Vocabulary, byte_level_pieces

_KEY = "tokenizer.ggml."


class TokenType(IntEnum):
    """What GGUF says of each token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL = (TokenType.CONTROL, TokenType.UNKNOWN)

# GGUF names one end token, but instruct models end a turn, a call or a text with different ones;
# converters that did not know them left some of them plain text.
_END_TOKENS = frozenset(
    (
        "</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
        "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<end_of_utterance>", "<|end|>",
        "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<turn|>", "[e~[",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)  # fmt: skip


def gguf_parts(checkpoint: Checkpoint, metadata: Metadata) -> TokenizerParts:
    """Read the tokenizer.

    Raises:
        CheckpointCorrupt: the metadata has none, or contradicts itself.
        UnsupportedCheckpoint: it is of a kind that we do not have.
    """
    return _GgufTokenizer(checkpoint, metadata).parts()


class _GgufTokenizer:
    def __init__(self, checkpoint: Checkpoint, metadata: Metadata) -> None:
        self._checkpoint = checkpoint
        self._metadata = metadata
        self._tokens = metadata.get_strings(f"{_KEY}tokens")
        self._types = self._token_types()

    def parts(self) -> TokenizerParts:
        model = self._metadata.get_string(f"{_KEY}model")
        if model == "gpt2":
            return self._byte_level()
        if model == "llama":
            return self._sentencepiece()
        raise UnsupportedCheckpoint(
            f"{self._metadata.path}: the tokenizer {model!r} is not supported; supported are "
            f"'gpt2' (byte-level BPE) and 'llama' (SentencePiece)"
        )

    def _byte_level(self) -> TokenizerParts:
        kind = get_kind(self._metadata.find_string(f"{_KEY}pre") or "default")
        vocab = {token: i for i, token in enumerate(self._tokens)}
        merges = [_merge(text) for text in self._metadata.get_strings(f"{_KEY}merges")]
        try:
            model = models.BPE(vocab, merges, ignore_merges=kind.ignores_merges)
        except Exception as fault:  # the library raises nothing more precise
            raise self._corrupt(f"its merges do not fit its vocabulary ({fault})") from fault
        codec = Codec.make(
            model,
            normalizer=None,
            pre_tokenizer=make_pre_tokenizer(kind),
            user_defined=self._added(TokenType.USER_DEFINED),
            special=self._added(*_SPECIAL),
        )
        pieces = byte_level_pieces(self._tokens, self._plain())
        return self._parts(codec, pieces, adds_bos=kind.adds_bos, adds_space=False)

    def _sentencepiece(self) -> TokenizerParts:
        scores = self._metadata.find_numbers(f"{_KEY}scores")
        if scores is None or len(scores) != len(self._tokens):
            raise self._corrupt(f"it has {len(self._tokens)} tokens, but not as many scores")
        says_space = self._metadata.find_bool(f"{_KEY}add_space_prefix")
        adds_space = True if says_space is None else says_space
        unknown = self._ids(TokenType.UNKNOWN)
        codec = SentencePieceModel(
            pieces=self._tokens,
            scores=scores,
            text_ids=self._ids(TokenType.NORMAL, TokenType.UNUSED),
            unknown=self._tokens[unknown[0]] if unknown else None,
            adds_space=adds_space,
        ).make_codec(
            user_defined=self._added(TokenType.USER_DEFINED), special=self._added(*_SPECIAL)
        )
        plain = self._plain()
        for i in self._ids(TokenType.BYTE):
            byte = byte_of(self._tokens[i])
            if byte is None:
                raise self._corrupt(f"its byte token {i} is {self._tokens[i]!r}")
            plain[i] = byte
        pieces = piece_bytes(self._tokens, plain)
        return self._parts(codec, pieces, adds_bos=True, adds_space=adds_space)

    def _parts(
        self, codec: Codec, pieces: Sequence[bytes], *, adds_bos: bool, adds_space: bool
    ) -> TokenizerParts:
        says_bos = self._metadata.find_bool(f"{_KEY}add_bos_token")
        return TokenizerParts(
            codec=codec,
            vocabulary=Vocabulary(pieces, self._ids(*_SPECIAL)),
            bos_token_id=self._known(self._checkpoint.bos_token_id),
            eos_token_ids=self._eos_token_ids(),
            adds_bos=adds_bos if says_bos is None else says_bos,
            adds_space=adds_space,
        )

    def _plain(self) -> dict[int, bytes]:
        """The bytes of the tokens that are written as they are."""
        added = self._ids(*_SPECIAL, TokenType.USER_DEFINED)
        plain = {i: self._tokens[i].encode() for i in added}
        return plain | dict.fromkeys(self._ids(TokenType.UNUSED), b"")

    def _added(self, *types: TokenType) -> list[AddedToken]:
        is_special = TokenType.USER_DEFINED not in types
        return [
            AddedToken(self._tokens[i], special=is_special, normalized=False)
            for i in self._ids(*types)
            if self._tokens[i]
        ]

    def _ids(self, *types: TokenType) -> list[int]:
        return [i for i, token_type in enumerate(self._types) if token_type in types]

    def _token_types(self) -> Sequence[int | float]:
        found = self._metadata.find_numbers(f"{_KEY}token_type")
        if found is None:
            found = [TokenType.NORMAL] * len(self._tokens)
        if len(found) != len(self._tokens):
            raise self._corrupt(f"it has {len(self._tokens)} tokens, but {len(found)} token types")
        for token_id, token in enumerate(self._tokens):
            if token in _END_TOKENS:
                found[token_id] = TokenType.CONTROL
        return found

    def _eos_token_ids(self) -> tuple[int, ...]:
        named = {self._tokens[i]: i for i in self._ids(TokenType.CONTROL)}
        ends = _END_TOKENS
        if "<|return|>" in named:
            # gpt-oss: <|end|> closes a message, and the answer goes on with the next one.
            ends -= {"<|end|>"}
        found = [*self._checkpoint.eos_token_ids, *(i for t, i in named.items() if t in ends)]
        return tuple(dict.fromkeys(i for i in found if self._known(i) is not None))

    def _known(self, token_id: int | None) -> int | None:
        if token_id is not None and token_id >= len(self._tokens):
            raise self._corrupt(f"it names token {token_id} of {len(self._tokens)}")
        return token_id

    def _corrupt(self, what: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(
            f"{self._metadata.path}: the tokenizer is broken: {what}; "
            f"convert or download the file again"
        )


def _merge(text: str) -> tuple[str, str]:
    # From the second character on: the first may itself be the blank.
    cut = text.find(" ", 1)
    return text[:cut], text[cut + 1 :]
