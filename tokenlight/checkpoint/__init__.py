# SPDX-License-Identifier: Apache-2.0
"""A model's files without torch: headers, configuration, tokenizer and template sources."""

from tokenlight.checkpoint.checkpoint import Checkpoint, TensorEntry, TokenizerSource
from tokenlight.checkpoint.formats import STORED_FORMATS, StoredFormat
from tokenlight.checkpoint.gguf_metadata import Metadata
from tokenlight.checkpoint.open import open_checkpoint

__all__ = [
    "STORED_FORMATS",
    "Checkpoint",
    "Metadata",
    "StoredFormat",
    "TensorEntry",
    "TokenizerSource",
    "open_checkpoint",
]
