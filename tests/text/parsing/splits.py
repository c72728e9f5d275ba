# SPDX-License-Identifier: Apache-2.0
"""Runs a parser over an output in pieces, and says in one comparable value what came of it."""

import random
from collections.abc import Iterable
from itertools import pairwise

from tests.text.parsing.outputs import Sample
from tests.text.parsing.wires import FUNCTIONS
from tokenlight.text.parsing import (
    CallEnded,
    CallStarted,
    Collector,
    Event,
    Parsed,
    ParseFailed,
    Parser,
    get_reasoning_format,
    get_tool_format,
)


def make_parser(sample: Sample, *, has_tools: bool = True) -> Parser:
    return Parser(
        get_tool_format(sample.tools),
        get_reasoning_format(sample.reasoning_format),
        functions=FUNCTIONS if has_tools else None,
        starts_inside=sample.starts_inside,
        id_source=lambda style, name, index: f"{style}-{index}",
    )


def events_of(sample: Sample, pieces: Iterable[str]) -> list[Event]:
    parser = make_parser(sample)
    events = [event for piece in pieces for event in parser.push(piece)]
    return events + parser.finish(is_cut=sample.is_cut)


def outcome(sample: Sample, pieces: Iterable[str]) -> tuple[Parsed, list[str]]:
    """The events joined, and the order of their kinds: equal for equal streams."""
    events = events_of(sample, pieces)
    collector = Collector()
    collector.add(events)
    kinds: list[str] = []
    for event in events:
        kind = type(event).__name__
        is_one = isinstance(event, CallStarted | CallEnded | ParseFailed)
        if is_one or not kinds or kinds[-1] != kind:
            kinds.append(kind)
    return collector.parsed(), kinds


def cut(text: str, places: Iterable[int]) -> list[str]:
    edges = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def random_cut(text: str, rng: random.Random) -> list[str]:
    """Anything from two pieces to single characters, empty pieces included."""
    most = rng.choice([1, 2, 4, 16, len(text)])
    return cut(text, [rng.randint(0, len(text)) for _ in range(rng.randint(1, max(1, most)))])
