# SPDX-License-Identifier: Apache-2.0
"""The generation fields that chat and completions share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_STOPS = 64
MAX_STOP_CHARS = 4096
_INT64 = 2**63 - 1

Probability = Annotated[float, Meta(ge=0, le=1)]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None
    """Send one more chunk at the end, without choices, that carries usage."""


class GenerationFields(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate; null means the same as leaving a field out."""

    model: str | None = None
    """A name from /v1/models; may be left out."""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Most tokens to generate per choice; lowered when the context has less room."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """0 is greedy. Default 1."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Sample among the most likely tokens that sum to this probability. Default 1: all."""
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    """Sample among the k most likely tokens; 0 and -1: all. Default 0."""
    min_p: Probability | None = None
    """Sample among tokens at least this many times as likely as the likeliest. Default 0: all."""
    seed: Annotated[int, Meta(ge=-_INT64 - 1, le=_INT64)] | None = None
    """The same seed, prompt and parameters give the same text. Default: a random one."""
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    """Choices per prompt. Default 1; choice i uses seed + i."""
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOPS)] | None = None
    """Text that ends the answer; it is not part of it."""
    stream: bool | None = None
    """Answer with server-sent events."""
    stream_options: StreamOptions | None = None
    """Only with stream."""
    user: str | None = None
    """The caller's own name for its user; used for nothing."""
