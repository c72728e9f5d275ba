# SPDX-License-Identifier: Apache-2.0
"""tokenizer_config.json: what a Hugging Face folder says beside its vocabulary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt
from tokenlight.text.tokenizer.typed_tokens import TokenType, TypedTokens

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


def with_added_tokens(typed: TypedTokens, config: Mapping[str, Any]) -> TypedTokens:
    """The vocabulary with the tokens that the configuration adds, or tells the types of.

    Raises:
        CheckpointCorrupt: an id would leave a gap.
    """
    tokens, types = list(typed.tokens), list(typed.types)
    for token_id, added in sorted(added_tokens(config).items()):
        if token_id > len(tokens):
            raise CheckpointCorrupt(
                f"tokenizer_config.json: adds the token {token_id}, but the one before it is "
                f"{len(tokens) - 1}"
            )
        if token_id == len(tokens):
            tokens.append("")
            types.append(TokenType.NORMAL)
        tokens[token_id] = added["content"]
        if typed.types[token_id : token_id + 1] != [TokenType.UNKNOWN]:
            is_special = bool(added.get("special"))
            types[token_id] = TokenType.CONTROL if is_special else TokenType.USER_DEFINED
    return TypedTokens(tokens, types)


def added_tokens(config: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """The tokens that the configuration adds, by id; each has a text as its `content`."""
    listed = config.get("added_tokens_decoder")
    return {
        int(token_id): token
        for token_id, token in (listed.items() if isinstance(listed, dict) else ())
        if token_id.isdecimal()
        and isinstance(token, dict)
        and isinstance(token.get("content"), str)
    }


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise CheckpointCorrupt(f"{path}: is not sound JSON: {fault}") from fault
    if not isinstance(found, dict):
        raise CheckpointCorrupt(f"{path}: is not a JSON object")
    return found
