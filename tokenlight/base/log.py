# SPDX-License-Identifier: Apache-2.0
"""Log lines: one event, then key=value pairs. Never prompt text."""

import logging
import sys
from typing import Literal, TypeAlias

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_ROOT = "tokenlight"

_LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def get_log(room: str) -> logging.Logger:
    """The logger of a room, below `tokenlight`."""
    return logging.getLogger(f"{_ROOT}.{room}")


class _Stderr:
    """The stderr of the moment: a test or a notebook may replace it and take it back."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str) -> None:
    """Send this process's log lines to stderr, from `level` (debug, info, warning, error) up."""
    root = logging.getLogger(_ROOT)
    root.setLevel(level.upper())
    if not root.handlers:
        sink = logging.StreamHandler(_Stderr())
        sink.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s", "%H:%M:%S")
        )
        root.addHandler(sink)
        root.propagate = False


def current_level() -> LogLevel:
    """What `configure` was last told; for a child process that is to log alike."""
    level = logging.getLogger(_ROOT).getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if number >= level), "error")


def show_library(name: str, level: LogLevel) -> None:
    """Send a library's log lines where ours go, from `level` up."""
    library = logging.getLogger(name)
    library.setLevel(level.upper())
    library.handlers = logging.getLogger(_ROOT).handlers
    library.propagate = False


def event(name: str, **fields: object) -> str:
    """Format one log line: `name key=value ...`; values with blanks are quoted."""
    parts = [name]
    for key, value in fields.items():
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        parts.append(f"{key}={text!r}" if " " in text else f"{key}={text}")
    return " ".join(parts)
