# SPDX-License-Identifier: Apache-2.0
"""How much one rendering may cost: steps and time, output, and values that one operation makes.

Bounds on single operations are looked up before the operation runs: afterwards the memory is gone.
"""

import re
from collections.abc import Callable, Iterable, Sized
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateError

from tokenlight.base.clock import now_s

MAX_RENDER_S = 10.0
MAX_CHARS = 1 << 26
"""Of the whole output, and of any text or list made on the way."""
MAX_TOTAL_CHARS = 1 << 29
"""Of all texts and lists made on the way: a loop may keep each of them."""
MAX_PADDING_CHARS = 1 << 10
MAX_INTEGER_BITS = 1 << 10

# A width or precision of five digits and more, or one taken from an argument.
_WIDE_PRINTF = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{5}|\*)")
_WIDE_FORMAT = re.compile(r"\{[^{}]*:[^{}]*(?:\d{5}|\{)")
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))


class TemplateTooCostly(TemplateError):
    """The template passed a bound."""


class Budget:
    """What one rendering may cost in time and memory."""

    def __init__(self) -> None:
        self._ends_s = now_s() + MAX_RENDER_S
        self._num_steps = 0
        self._num_chars = 0

    def spend_step(self) -> None:
        """Count a turn of a loop or a call of a macro."""
        self._num_steps += 1
        if self._num_steps & 0x3F == 0 and now_s() > self._ends_s:
            raise TemplateTooCostly(f"it takes longer than {MAX_RENDER_S:.0f} s")

    def spend_chars(self, num_chars: int) -> None:
        """Count a text or list of `num_chars` elements, before it is made."""
        self._num_chars += num_chars
        for made, limit in ((num_chars, MAX_CHARS), (self._num_chars, MAX_TOTAL_CHARS)):
            if made > limit:
                raise TemplateTooCostly(f"it makes texts or lists of more than {limit} elements")


BUDGET: ContextVar[Budget] = ContextVar("template_budget")


def check_chars(num_chars: int) -> None:
    BUDGET.get().spend_chars(num_chars)


def check_padding(width: object) -> None:
    if isinstance(width, int) and width > MAX_PADDING_CHARS:
        raise TemplateTooCostly(f"it pads by more than {MAX_PADDING_CHARS} characters")


def check_printf(text: object) -> None:
    if isinstance(text, str) and _WIDE_PRINTF.search(text):
        raise TemplateTooCostly(f"it pads by more than {MAX_PADDING_CHARS} characters")


def check_format(text: str) -> None:
    if _WIDE_FORMAT.search(text.replace("{{", "").replace("}}", "")):
        raise TemplateTooCostly(f"it pads by more than {MAX_PADDING_CHARS} characters")


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Before `left operator right`, for the operators that can make much of little."""
    if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        check_chars(len(left) + len(right))
    elif operator == "%":
        check_printf(left)
    elif operator == "*":
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        elif isinstance(left, int) and isinstance(right, Sized):
            check_chars(left * len(right))
        elif isinstance(left, Sized) and isinstance(right, int):
            check_chars(len(left) * right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))


def check_method(method: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Before a text's own method is called."""
    text = getattr(method, "__self__", None)
    if not isinstance(text, str):
        return
    if method.__name__ in _PADDING_METHODS:
        for argument in arguments:
            check_padding(argument)
    elif method.__name__ == "replace" and len(arguments) > 1:
        check_replace(text, arguments[0], arguments[1])
    elif method.__name__ == "join" and arguments and isinstance(arguments[0], (list, tuple)):
        check_join(text, arguments[0])


def check_replace(text: str, old: object, by: object) -> None:
    if isinstance(old, str) and isinstance(by, str):
        check_chars(len(text) + text.count(old) * len(by))


def check_join(joint: str, parts: Iterable[object]) -> None:
    check_chars(sum(len(joint) + (len(p) if isinstance(p, str) else 1) for p in parts))


def concatenate(parts: Iterable[str]) -> str:
    """Join output, bounded while it comes."""
    joined: list[str] = []
    num_chars = 0
    for part in parts:
        num_chars += len(part)
        if num_chars > MAX_CHARS:
            break
        joined.append(part)
    check_chars(num_chars)
    return "".join(joined)


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_INTEGER_BITS:
        raise TemplateTooCostly(f"it makes a number of more than {MAX_INTEGER_BITS} bits")
