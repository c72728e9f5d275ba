# SPDX-License-Identifier: Apache-2.0
"""Transformers' tokenizers of the tiny vocabularies, and folders that they are saved in."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import (
    CohereTokenizer,
    GemmaTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerBase,
    Qwen2Tokenizer,
)
from transformers.tokenization_utils_base import generate_merges

from tests.text.tokenizer.vocabularies import bpe_vocabulary, spm_vocabulary
from tokenlight.checkpoint import Checkpoint, TokenizerSource


def folder(path: Path, *, template: str | None = None, eos: tuple[int, ...] = ()) -> Checkpoint:
    """A checkpoint that has nothing but its tokenizer's files."""
    return Checkpoint(
        path=path,
        name=path.name,
        layout="huggingface",
        model_type="llama",
        config={},
        tensors={},
        tokenizer=TokenizerSource(
            kind="huggingface", files={file.name: file for file in path.iterdir()}
        ),
        chat_template=template,
        bos_token_id=None,
        eos_token_ids=eos,
        num_bytes=0,
    )


def byte_level(cls: type, **kwargs: Any) -> PreTrainedTokenizerBase:
    tokens, merges = bpe_vocabulary()
    vocab = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    return cls(vocab=vocab, merges=pairs, **kwargs)


def sentencepiece(cls: type, name: str, **kwargs: Any) -> PreTrainedTokenizerBase:
    vocabulary = spm_vocabulary(name)
    vocab = {piece: i for i, piece in enumerate(vocabulary.pieces)}
    scores = dict(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    return cls(vocab=vocab, merges=generate_merges(vocab, scores), **kwargs)


# One is special, one is not, and neither is in the vocabulary: their ids come after it.
ADDED = [AddedToken("<|tool|>", special=True), AddedToken("<think>", normalized=False)]


MAKERS = {
    "qwen2": lambda: byte_level(Qwen2Tokenizer, eos_token="<|im_end|>"),
    "cohere": lambda: byte_level(
        CohereTokenizer, bos_token="<s>", eos_token="</s>", pad_token="<s>", unk_token="<s>",
        add_bos_token=True,
    ),
    "llama": lambda: sentencepiece(LlamaTokenizer, "spm-llama", add_bos_token=True),
    "gemma": lambda: sentencepiece(
        GemmaTokenizer, "spm-gemma", bos_token="<s>", eos_token="</s>", mask_token="<unk>"
    ),
}  # fmt: skip


def save(name: str, path: Path) -> None:
    """Save one of MAKERS, with ADDED, as a folder."""
    made = MAKERS[name]()
    made.add_tokens(ADDED)
    made.save_pretrained(path)
