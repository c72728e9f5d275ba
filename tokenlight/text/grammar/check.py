# SPDX-License-Identifier: Apache-2.0
"""Whether rules can be enforced at all, found out before a request reaches the engine."""

from __future__ import annotations

import re
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

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
        raise InvalidRequest(f"{param!r} cannot be enforced: {fault}; simplify it", param=param)


@lru_cache(maxsize=256)
def _fault(rules: str) -> str:
    """The compiler's complaint, in one line; "" for none."""
    grammar = LLMatcher.grammar_from_lark(rules)
    said = LLMatcher.validate_grammar(grammar, limits=LIMITS)
    if not said or said.startswith("WARNING"):
        return "" if _can_begin(grammar) else "no text follows it"
    complaint = _SOURCE.sub("", _PLACE.sub("", said))
    return " ".join(complaint.replace("^", " ").split())


def _can_begin(grammar: str) -> bool:
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=LIMITS)
    if matcher.is_accepting() or matcher.is_error():
        return True  # an error here is one of the bytes' size, not of the rules
    mask = allocate_token_bitmask(1, _NUM_BYTES + 1)
    fill_next_token_bitmask(matcher, mask)
    return bool(mask[0, : _NUM_BYTES // 32].any())  # rules that lead nowhere allow the end alone


_NUM_BYTES = 256


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    """Each byte a token: enough to ask what may come first."""
    return LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=_NUM_BYTES + 1, eos_token=_NUM_BYTES)


class _Bytes:
    """The names that llguidance looks for."""

    is_tokenizer_wrapper = True
    eos_token_id = _NUM_BYTES
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(_NUM_BYTES)), b"<end>")
    special_token_ids = (_NUM_BYTES,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)
