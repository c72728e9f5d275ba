# SPDX-License-Identifier: Apache-2.0
"""Tiny vocabularies whose merges cross words, digits and blanks: every cut shows in the ids."""

import json
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from tests.models.tiny import byte_characters

GOLDEN_DIR = Path(__file__).parent / "golden"
SPM_NAMES = ("spm-gemma", "spm-llama")

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]")
USER_DEFINED = ("<tool_call>", "</tool_call>", "    ", "<|fim|>")
# Tokens that no merge makes: only where merges are ignored for whole words are they found.
UNMERGED = (
    "ĠHelloWorld",
    "helloWorld",
    "ĠXMLHttpRequest",
    "Straße",
    "Ġthe",
    "ĠDON",
    "kebab",
    "Ġnaïve",
)


def bpe_vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of the byte-level BPE."""
    merges = (GOLDEN_DIR / "bpe_merges.txt").read_text().splitlines()
    merged = [merge.replace(" ", "") for merge in merges]
    unmerged = [token for token in UNMERGED if token not in merged]
    tokens = [*CONTROL, *byte_characters(), *merged, *unmerged, *USER_DEFINED]
    return tokens, merges


def write_bpe_gguf(path: Path, pre: str) -> Path:
    """Write a GGUF file that has a byte-level BPE of pre-tokenizer `pre` and no model."""
    tokens, merges = bpe_vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([_token_type(token) for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    return close_gguf(writer, path, len(tokens))


def close_gguf(writer: gguf.GGUFWriter, path: Path, vocab_size: int) -> Path:
    """Add what a llama's header must have, and write."""
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_rope_dimension_count(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((vocab_size, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _token_type(token: str) -> gguf.TokenType:
    if token in CONTROL:
        return gguf.TokenType.CONTROL
    return gguf.TokenType.USER_DEFINED if token in USER_DEFINED else gguf.TokenType.NORMAL


@dataclass(frozen=True, slots=True)
class SpmVocabulary:
    """A SentencePiece BPE as SentencePiece trained it."""

    pieces: list[str]
    scores: list[float]
    types: list[int]
    adds_space: bool

    @property
    def specials(self) -> list[str]:
        """Control and user-defined pieces, as they stand in text."""
        kinds = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
        named = zip(self.pieces, self.types, strict=True)
        return [piece.replace("\u2581", " ") for piece, kind in named if kind in kinds]


def spm_vocabulary(name: str) -> SpmVocabulary:
    """One of SPM_NAMES: "spm-llama" begins texts with a blank, "spm-gemma" has added pieces."""
    rows = json.loads((GOLDEN_DIR / f"{name}.json").read_text())
    pieces, scores, types = map(list, zip(*rows, strict=True))
    return SpmVocabulary(pieces, scores, types, adds_space=name == "spm-llama")


def write_spm_gguf(path: Path, name: str) -> Path:
    """Write a GGUF file that has a SentencePiece vocabulary and no model, as llama.cpp converts."""
    vocabulary = spm_vocabulary(name)
    user_defined = gguf.TokenType.USER_DEFINED
    tokens = [
        piece.replace("\u2581", " ") if kind == user_defined else piece
        for piece, kind in zip(vocabulary.pieces, vocabulary.types, strict=True)
    ]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(vocabulary.scores)
    writer.add_token_types(vocabulary.types)
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_unk_token_id(tokens.index("<unk>"))
    writer.add_add_space_prefix(vocabulary.adds_space)
    return close_gguf(writer, path, len(tokens))
