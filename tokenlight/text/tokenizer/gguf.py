# SPDX-License-Identifier: Apache-2.0
"""A tokenizer out of a GGUF file's metadata."""

from collections.abc import Sequence
from enum import IntEnum

from tokenizers import AddedToken, models

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, Metadata
from tokenlight.text.tokenizer.codec import Codec, TokenizerParts
from tokenlight.text.tokenizer.pretokenizers import PreTokenizerKind, get_kind, make_pre_tokenizer
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


# GGUF names one end token, but instruct models end a turn, a call or a text with different ones.
_END_TOKENS = frozenset(
    (
        "</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<|end_of_sentence|>",
        "<EOT>", "[EOT]", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",
        "<|end_of_turn|>", "<end_of_utterance>", "<|end|>", "<|return|>", "<|call|>",
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
        if model != "gpt2":
            raise UnsupportedCheckpoint(
                f"{self._metadata.path}: the tokenizer {model!r} is not supported; "
                f"supported is 'gpt2' (byte-level BPE)"
            )
        kind = get_kind(self._metadata.find_string(f"{_KEY}pre") or "default")
        says_bos = self._metadata.find_bool(f"{_KEY}add_bos_token")
        return TokenizerParts(
            codec=self._byte_level_codec(kind),
            vocabulary=self._byte_level_vocabulary(),
            bos_token_id=self._bos_token_id(),
            eos_token_ids=self._eos_token_ids(),
            adds_bos=kind.adds_bos if says_bos is None else says_bos,
        )

    def _byte_level_codec(self, kind: PreTokenizerKind) -> Codec:
        vocab = {token: i for i, token in enumerate(self._tokens)}
        merges = [_merge(text) for text in self._metadata.get_strings(f"{_KEY}merges")]
        try:
            model = models.BPE(vocab, merges, ignore_merges=kind.ignores_merges)
        except Exception as fault:  # the library raises nothing more precise
            raise self._corrupt(f"its merges do not fit its vocabulary ({fault})") from fault
        return Codec(
            model,
            normalizer=None,
            pre_tokenizer=make_pre_tokenizer(kind),
            user_defined=self._added(TokenType.USER_DEFINED),
            special=self._added(TokenType.CONTROL, TokenType.UNKNOWN),
        )

    def _byte_level_vocabulary(self) -> Vocabulary:
        special = self._ids(TokenType.CONTROL, TokenType.UNKNOWN)
        plain = {i: self._tokens[i].encode() for i in self._ids(TokenType.USER_DEFINED)}
        plain |= {i: self._tokens[i].encode() for i in special}
        plain |= dict.fromkeys(self._ids(TokenType.UNUSED), b"")
        return Vocabulary(byte_level_pieces(self._tokens, plain), special)

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
            return [TokenType.NORMAL] * len(self._tokens)
        if len(found) != len(self._tokens):
            raise self._corrupt(f"it has {len(self._tokens)} tokens, but {len(found)} token types")
        return found

    def _bos_token_id(self) -> int | None:
        return self._known(self._checkpoint.bos_token_id)

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
