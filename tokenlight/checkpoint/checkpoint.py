# SPDX-License-Identifier: Apache-2.0
"""What any checkpoint is opened into: names, shapes and places of tensors, not their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenlight.checkpoint.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor's bytes are. `shape` is row-major: the last dimension is contiguous."""

    name: str
    shape: tuple[int, ...]
    format: str
    path: Path
    offset_bytes: int
    num_bytes: int
    scaled: ScaledParts | None = None
    """Of a matrix whose scales lie apart, whose `format` says how far each reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledParts:
    """The tensors of one matrix, each as the file has it; `weights/scaled.py` joins them."""

    packing: Literal["rows", "words", "awq", "gptq", "pairs"]
    """Of numbers: one a byte, or eight in an int32 along a row, or as a method's own code packs
    them, or two in a byte."""
    numbers: TensorEntry
    scales: TensorEntry
    zeros: TensorEntry | None = None
    """What is subtracted from int4 numbers first; None for 8."""
    group_of: TensorEntry | None = None
    """The group of each column, where a file lists them."""
    zero_shift: int = 0
    """Added to stored zeros."""
    is_symmetric: bool = True
    """Whether all zeros should be 8."""

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        listed = (self.numbers, self.scales, self.zeros, self.group_of)
        return tuple(entry for entry in listed if entry is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSource:
    """The raw material of a tokenizer; `text/` makes one of it."""

    kind: Literal["gguf", "huggingface"]
    gguf: Metadata | None = None
    """kind "gguf": the file's metadata; the tokenizer's keys start with `tokenizer.ggml.`."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """kind "huggingface": file name (tokenizer.json, tokenizer_config.json, ...) to its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's files, read and checked as far as their headers go."""

    path: Path
    name: str
    """What the model is called where nobody says otherwise: the file's or folder's own name."""
    layout: Literal["gguf", "huggingface"]
    """Whose names the tensors bear."""
    model_type: str
    config: Mapping[str, Any]
    """In the keys of Hugging Face's config.json, whatever the files say."""
    tensors: Mapping[str, TensorEntry]
    tokenizer: TokenizerSource | None
    chat_template: str | None
    tool_template: str | None = None
    """What conversations with tools are written by, where the model has a template for them."""
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    num_bytes: int
    """Of all files together."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """What its makers advise: any of temperature, top_p, top_k, min_p and repetition_penalty."""
