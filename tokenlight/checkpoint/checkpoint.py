# SPDX-License-Identifier: Apache-2.0
"""What any checkpoint is opened into: names, shapes and places of tensors, not their numbers."""

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
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    num_bytes: int
    """Of all files together."""
