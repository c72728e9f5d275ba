# SPDX-License-Identifier: Apache-2.0
"""A call's arguments: JSON text, as clients send them; the object that templates want."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tokenlight.base.surrogates import replace_lone_surrogates

BROKEN_KEY = "unparsed"
"""The one key of the object that stands for arguments that spell none."""


def json_text(value: object) -> str:
    """As the arguments of a call are written."""
    return msgspec.json.encode(value).decode()


def written_arguments(sent: object) -> str:
    """Arguments as they were sent: a text as it is, all else as JSON; none are an empty object."""
    return sent if isinstance(sent, str) else json_text(sent or {})


def spelled_object(text: str) -> dict[str, Any] | None:
    """The object that an argument text spells; None when it spells none. An empty text is {}."""
    try:
        spelled = _loads(text) if text.strip() else {}
        if isinstance(spelled, str):  # encoded twice, as some clients do
            spelled = _loads(spelled)
    except (ValueError, RecursionError):
        return None
    return spelled if isinstance(spelled, dict) else None


def _loads(text: str) -> Any:
    return json.loads(replace_lone_surrogates(text))


def template_arguments(text: str, *, takes_objects: bool, takes_strings: bool) -> Any:
    """Arguments as a template can render them: the object, or its text where it wants text.

    What spells no object goes as text to a template that writes text through, and as the one value
    of an object to any other.
    """
    spelled = spelled_object(text)
    if takes_objects:
        if spelled is not None:
            return spelled
        return text if takes_strings else {BROKEN_KEY: text}
    return text if spelled is None else json.dumps(spelled, ensure_ascii=False)
