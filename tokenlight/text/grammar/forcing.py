# SPDX-License-Identifier: Apache-2.0
"""Which rules are followed a token at a time, because what they force may be very long.

What rules leave no choice in is worked out as a whole: that saves steps, and takes as long as the
text is long. Twenty characters of a regex can force a thousand million.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from tokenlight.text.conversation import Shape

MAX_CHARS = 1 << 17
"""Of a text that is worked out at once: some 0.2 s."""

_TOKEN_BY_TOKEN = '%llguidance {"no_forcing": true}\n'
_COUNT = re.compile(r"\{\s*(\d{1,9})")


def bounded(rules: str, *, shape: Shape | None, schemas: Iterable[object] = ()) -> str:
    """The rules, made to force nothing at once where a text that they force could be too long.

    Args:
        rules: made of `shape` and `schemas`, and so their length bounds what repeats nothing.
        shape: what the answer's text must be.
        schemas: of the calls that the rules allow.
    """
    if len(rules) <= MAX_CHARS and _most_chars(shape, schemas) <= MAX_CHARS:
        return rules
    # Behind what a client wrote, so that it holds whatever that says.
    return f"{rules.rstrip()}\n{_TOKEN_BY_TOKEN}"


def _most_chars(shape: Shape | None, schemas: Iterable[object]) -> float:
    """How long a text may be that repetitions force; at least as long as it is."""
    if shape is None:
        return _most_of_schemas(schemas)
    if shape.lark is not None:
        return math.inf  # rules within rules, each twice
    most = _most_of_schemas([shape.json_schema, *schemas])
    return most if shape.regex is None else max(most, _most_of_pattern(shape.regex))


def _most_of_schemas(schemas: Iterable[object]) -> int:
    patterns: list[str] = []
    least_lengths: list[int] = []
    for object_ in _objects(schemas):
        if isinstance(pattern := object_.get("pattern"), str):
            patterns.append(pattern)
        if isinstance(named := object_.get("patternProperties"), dict):
            patterns.extend(named)
        if isinstance(least := object_.get("minLength"), int | float):
            least_lengths.append(int(least))
    if not patterns:
        return 0  # any character may stand in a string: nothing is forced
    return max([*map(_most_of_pattern, patterns), *least_lengths])


def _most_of_pattern(pattern: str) -> int:
    return len(pattern) * math.prod(max(int(count), 1) for count in _COUNT.findall(pattern))


def _objects(schemas: Iterable[object]) -> Iterator[dict[str, object]]:
    """All objects, at any depth."""
    rest = list(schemas)
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
