# SPDX-License-Identifier: Apache-2.0
"""A model's files without torch: headers, configuration, tokenizer and template sources."""

from tokenlight.checkpoint.checkpoint import Checkpoint, TensorEntry, TokenizerSource
from tokenlight.checkpoint.fetch.default_model import fetch_default_model
from tokenlight.checkpoint.fetch.hub import (
    fetch_hub_config,
    fetch_hub_model,
    find_hub_gguf,
    is_hub_id,
)
from tokenlight.checkpoint.fetch.progress import FetchProgress, Progress
from tokenlight.checkpoint.formats import BYTES, STORED_FORMATS, StoredFormat
from tokenlight.checkpoint.locate import find_local_model, locate_model
from tokenlight.checkpoint.metadata import Metadata
from tokenlight.checkpoint.open import open_checkpoint

__all__ = [
    "BYTES",
    "STORED_FORMATS",
    "Checkpoint",
    "FetchProgress",
    "Metadata",
    "Progress",
    "StoredFormat",
    "TensorEntry",
    "TokenizerSource",
    "fetch_default_model",
    "fetch_hub_config",
    "fetch_hub_model",
    "find_hub_gguf",
    "find_local_model",
    "is_hub_id",
    "locate_model",
    "open_checkpoint",
]
