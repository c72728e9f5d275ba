# SPDX-License-Identifier: Apache-2.0
"""A tool call that the model began and did not make, as an answer tells of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from tokenlight.text.parsing import ParseFailed


class ParseFailure(msgspec.Struct, frozen=True, kw_only=True):
    parser: str
    """The name of the tool format."""
    reason: str
    """Stable; `tokenlight_parse_errors` counts by it."""
    text: str
    """What could not be read; empty where the call had started. The answer's text shows it, but for
    what was cut (`truncated`)."""


def parse_failures(failures: Iterable[ParseFailed]) -> list[ParseFailure] | UnsetType:
    """The failures; nothing where there is none."""
    return [
        ParseFailure(parser=failed.parser, reason=failed.reason, text=failed.visible)
        for failed in failures
    ] or UNSET
