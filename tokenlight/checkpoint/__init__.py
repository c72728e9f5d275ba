# SPDX-License-Identifier: Apache-2.0
"""A model's files without torch: headers, configuration, tokenizer and template sources."""

from tokenlight.checkpoint.checkpoint import Checkpoint, TensorEntry, TokenizerSource
from tokenlight.checkpoint.default_model import (
    DEFAULT_MODEL,
    FetchProgress,
    fetch_default_model,
    find_default_model,
)
from tokenlight.checkpoint.formats import STORED_FORMATS, StoredFormat
from tokenlight.checkpoint.gguf_metadata import Metadata
from tokenlight.checkpoint.open import open_checkpoint

__all__ = [
    "DEFAULT_MODEL",
    "STORED_FORMATS",
    "Checkpoint",
    "FetchProgress",
    "Metadata",
    "StoredFormat",
    "TensorEntry",
    "TokenizerSource",
    "fetch_default_model",
    "find_default_model",
    "open_checkpoint",
]
