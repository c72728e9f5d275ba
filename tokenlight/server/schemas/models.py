# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models: what goes out."""

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


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]
