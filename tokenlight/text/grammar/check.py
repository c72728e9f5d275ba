# SPDX-License-Identifier: Apache-2.0
"""Whether rules can be enforced at all, found out before a request reaches the engine."""

from __future__ import annotations

import re
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits

from tokenlight.base.errors import InvalidRequest

MAX_CHARS = 1 << 20

_PLACE = re.compile(r"^at \d+\(\d+\): ")
_SOURCE = re.compile(r"^ *\d+ \|.*$", re.MULTILINE)

LIMITS = LLParserLimits(
    initial_lexer_fuel=2_000_000,  # some 40 ms
    max_grammar_size=200_000,
    max_lexer_states=50_000,  # some 100 MB at the very most
    precompute_large_lexemes=False,
    verbose_errors=False,  # what fails is a user's schema: it stays out of logs
)
"""For checking and for matching: what passes here compiles there."""


def check_rules(rules: str, *, param: str) -> None:
    """Returns if `rules` can be compiled within the bounds. Takes milliseconds: use a thread.

    Raises:
        InvalidRequest: they cannot; `param` is the field that they were made of.
    """
    fault = f"it is longer than {MAX_CHARS} characters" if len(rules) > MAX_CHARS else _fault(rules)
    if fault:
        raise InvalidRequest(
            f"{param!r} cannot be enforced: {fault}; simplify the schema", param=param
        )


@lru_cache(maxsize=256)
def _fault(rules: str) -> str:
    """The compiler's complaint, in one line; "" for none."""
    said = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(rules), limits=LIMITS)
    if said.startswith("WARNING"):
        return ""
    complaint = _SOURCE.sub("", _PLACE.sub("", said))
    return " ".join(complaint.replace("^", " ").split())
