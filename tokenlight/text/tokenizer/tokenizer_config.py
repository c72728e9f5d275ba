# SPDX-License-Identifier: Apache-2.0
"""tokenizer_config.json: what a Hugging Face folder says beside its vocabulary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_tokenizer_config(files: Mapping[str, Path]) -> Mapping[str, Any]:
    """The file's object, special_tokens_map.json's below it; empty without either.

    Raises:
        CheckpointCorrupt: a file is no JSON object.
    """
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if name in files:
            found |= _read_object(files[name])
    return found


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the tokens that have a name: "bos_token" and its like."""
    found = {}
    for name in _NAMES:
        token = config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise CheckpointCorrupt(f"{path}: is not sound JSON: {fault}") from fault
    if not isinstance(found, dict):
        raise CheckpointCorrupt(f"{path}: is not a JSON object")
    return found
