# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models: what goes out, with the fields that OpenAI's and Anthropic's clients look for."""

from __future__ import annotations

from typing import Literal

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["tokenlight"] = "tokenlight"
    root: str
    """The checkpoint that is served."""
    parent: None = None
    max_model_len: int
    """Prompt and answer together, in tokens."""
    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    """`created`, as Anthropic's clients read it."""
    max_input_tokens: int
    max_tokens: int
    """The longest answer, to the shortest prompt."""
    lifecycle: Literal["active"] = "active"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]
    first_id: str
    last_id: str
    has_more: Literal[False] = False
