# SPDX-License-Identifier: Apache-2.0
"""Tool calls and reasoning out of a model's text: one incremental parser, wire formats as data."""

from tokenlight.text.parsing.detect import Picked, RoundTrip, detect, pick, round_trip
from tokenlight.text.parsing.events import (
    ArgumentsDelta,
    Call,
    CallEnded,
    CallStarted,
    Collector,
    Content,
    Event,
    Parsed,
    ParseFailed,
    Reasoning,
)
from tokenlight.text.parsing.format import ReasoningFormat, ToolFormat
from tokenlight.text.parsing.formats import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    get_reasoning_format,
    get_tool_format,
)
from tokenlight.text.parsing.output import Functions
from tokenlight.text.parsing.parser import Parser, parse

__all__ = [
    "REASONING_FORMATS",
    "TOOL_FORMATS",
    "ArgumentsDelta",
    "Call",
    "CallEnded",
    "CallStarted",
    "Collector",
    "Content",
    "Event",
    "Functions",
    "ParseFailed",
    "Parsed",
    "Parser",
    "Picked",
    "Reasoning",
    "ReasoningFormat",
    "RoundTrip",
    "ToolFormat",
    "detect",
    "get_reasoning_format",
    "get_tool_format",
    "parse",
    "pick",
    "round_trip",
]
