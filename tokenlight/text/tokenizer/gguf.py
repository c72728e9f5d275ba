# SPDX-License-Identifier: Apache-2.0
"""A tokenizer out of a GGUF file's metadata."""

from collections.abc import Sequence

from tokenizers import models

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import Checkpoint, Metadata
from tokenlight.text.tokenizer.codec import Codec, TokenizerParts
from tokenlight.text.tokenizer.pretokenizers import get_kind, make_pre_tokenizer
from tokenlight.text.tokenizer.sentencepiece import SentencePieceModel
from tokenlight.text.tokenizer.typed_tokens import SPECIAL, TokenType, TypedTokens
from tokenlight.text.tokenizer.vocabulary import Vocabulary, byte_level_pieces

_KEY = "tokenizer.ggml."


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
        tokens = metadata.get_strings(f"{_KEY}tokens")
        self._typed = TypedTokens(tokens, self._types(tokens))

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
        typed = self._typed
        kind = get_kind(self._metadata.find_string(f"{_KEY}pre") or "default")
        vocab = {token: i for i, token in enumerate(typed.tokens)}
        merges = [_merge(text) for text in self._metadata.get_strings(f"{_KEY}merges")]
        try:
            model = models.BPE(vocab, merges, ignore_merges=kind.ignores_merges)
        except Exception as fault:  # the library raises nothing more precise
            raise self._corrupt(f"its merges do not fit its vocabulary ({fault})") from fault
        codec = Codec.make(
            model,
            normalizer=None,
            pre_tokenizer=make_pre_tokenizer(kind),
            user_defined=typed.user_defined(),
            special=typed.special(),
            cuts_words=True,
        )
        pieces = byte_level_pieces(typed.tokens, typed.plain())
        return TokenizerParts(
            codec=codec,
            vocabulary=Vocabulary(pieces, typed.ids(*SPECIAL)),
            bos_token_id=self._known(self._checkpoint.bos_token_id),
            eos_token_ids=self._eos_token_ids(),
            adds_bos=self._says("add_bos_token", default=kind.adds_bos),
        )

    def _sentencepiece(self) -> TokenizerParts:
        scores = self._metadata.find_numbers(f"{_KEY}scores")
        num_tokens = len(self._typed.tokens)
        if scores is None or len(scores) != num_tokens:
            raise self._corrupt(f"it has {num_tokens} tokens, but not as many scores")
        adds_space = self._says("add_space_prefix", default=True)
        model = SentencePieceModel(typed=self._typed, scores=scores, adds_space=adds_space)
        return TokenizerParts(
            codec=model.make_codec(),
            vocabulary=model.make_vocabulary(),
            bos_token_id=self._known(self._checkpoint.bos_token_id),
            eos_token_ids=self._eos_token_ids(),
            adds_bos=self._says("add_bos_token", default=True),
            adds_space=adds_space,
        )

    def _says(self, name: str, *, default: bool) -> bool:
        found = self._metadata.find_bool(f"{_KEY}{name}")
        return default if found is None else found

    def _types(self, tokens: Sequence[str]) -> Sequence[int | float]:
        types = self._metadata.find_numbers(f"{_KEY}token_type")
        if types is None:
            types = [TokenType.NORMAL] * len(tokens)
        if len(types) != len(tokens):
            raise self._corrupt(f"it has {len(tokens)} tokens, but {len(types)} token types")
        for token_id, token in enumerate(tokens):
            if token in _END_TOKENS:
                types[token_id] = TokenType.CONTROL
        return types

    def _eos_token_ids(self) -> tuple[int, ...]:
        named = {self._typed.tokens[i]: i for i in self._typed.ids(TokenType.CONTROL)}
        ends = _END_TOKENS
        if "<|return|>" in named:
            # gpt-oss: <|end|> closes a message, and the answer goes on with the next one.
            ends -= {"<|end|>"}
        found = [*self._checkpoint.eos_token_ids, *(i for t, i in named.items() if t in ends)]
        return tuple(dict.fromkeys(i for i in found if self._known(i) is not None))

    def _known(self, token_id: int | None) -> int | None:
        num_tokens = len(self._typed.tokens)
        if token_id is not None and token_id >= num_tokens:
            raise self._corrupt(f"it names token {token_id} of {num_tokens}")
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
