# SPDX-License-Identifier: Apache-2.0
"""Whole outputs and their meaning; and that no way of cutting an output changes it."""

import json
import random
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.parsing.outputs import ALL, ARGS, MEANT, Sample
from tests.text.parsing.splits import cut, make_parser, outcome, random_cut
from tests.text.parsing.wires import FUNCTIONS, WIRES, Wire
from tokenlight.text.parsing import TOOL_FORMATS, Collector, Parser, parse
from tokenlight.text.parsing import parser as parser_module
from tokenlight.text.parsing.formats import get_reasoning_format
from tokenlight.text.parsing.output import make_id


def names(samples: list[Sample]) -> list[str]:
    return [f"{sample.tools}: {sample.name}" for sample in samples]


@pytest.mark.parametrize("sample", MEANT, ids=names(MEANT))
def test_meaning(sample: Sample) -> None:
    parsed, _ = outcome(sample, [sample.text])
    assert parsed.content == sample.content
    assert parsed.reasoning == sample.reasoning
    assert [(call.name, call.arguments) for call in parsed.calls] == list(sample.calls)
    assert tuple(failure.reason for failure in parsed.failures) == sample.failures
    incomplete = [number for number, call in enumerate(parsed.calls) if not call.is_complete]
    assert incomplete == list(sample.incomplete)


@pytest.mark.parametrize("sample", ALL, ids=names(ALL))
def test_every_cut_in_two_is_the_same(sample: Sample) -> None:
    whole = outcome(sample, [sample.text])
    for place in range(len(sample.text) + 1):
        assert outcome(sample, cut(sample.text, [place])) == whole, place


@pytest.mark.parametrize("tools", sorted(TOOL_FORMATS))
def test_1000_random_splits_are_the_same(tools: str) -> None:
    samples = [sample for sample in ALL if sample.tools == tools]
    rng = random.Random(tools)
    whole = {sample.name: outcome(sample, [sample.text]) for sample in samples}
    for _ in range(1000):
        sample = rng.choice(samples)
        pieces = random_cut(sample.text, rng)
        assert outcome(sample, pieces) == whole[sample.name], pieces


DAMAGE = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=400),
        st.integers(min_value=0, max_value=12),
        st.sampled_from(
            ["", '"', "\\", "{", "}", "]", "<", "\n", "'", "```", "é", "\\ud83d", "<|x|>",
             "</think>", "<tool_call>", "</tool_call>", "</parameter>", "</function>",
             ":", ",", "<|end|>"]
        ),
    ),
    max_size=4,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ALL), DAMAGE, st.randoms(use_true_random=False), st.booleans())
def test_damaged_outputs_are_the_same_in_any_split(sample, damage, rng, is_cut) -> None:
    text = sample.text
    for place, length, put in damage:
        text = text[:place] + put + text[place + length :]
    damaged = replace(sample, text=text, is_cut=is_cut)
    whole = outcome(damaged, [text])
    for _ in range(5):
        pieces = random_cut(text, rng)
        assert outcome(damaged, pieces) == whole, pieces


TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="<>[]{}`|\uff5c\r\x00"),
    max_size=30,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
RAW = st.fixed_dictionaries({}, optional={"city": TEXT, "options": st.dictionaries(TEXT, JSON)})
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "city": TEXT,
        "days": st.integers(-(10**12), 10**12),
        "exact": st.booleans(),
        "tags": st.lists(TEXT, max_size=3),
    },
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(WIRES)), st.data())
def test_what_a_wire_writes_is_read_back(name: str, data: st.DataObject) -> None:
    wire: Wire = WIRES[name]
    arguments = data.draw(RAW if wire.is_raw else PLAIN)
    sample = Sample("made", name, wire.write("", [("get_weather", arguments)]))
    parsed, _ = outcome(sample, [sample.text])
    assert not parsed.failures
    assert [call.name for call in parsed.calls] == ["get_weather"]
    assert parsed.calls[0].is_complete
    assert json.loads(parsed.calls[0].arguments) == arguments


@pytest.mark.parametrize("name", sorted(WIRES))
def test_every_part_of_a_wire_is_found(name: str) -> None:
    wire = WIRES[name]
    calls = [("get_weather", ARGS), ("list_files", {})][: 2 if wire.is_parallel else 1]
    content = "Let me look: 1 < 2." if wire.keeps_content else ""
    text = wire.write(content, calls)
    thought = "First,\nI think."
    if wire.thinking:
        text = wire.thinking(thought) + text
    parsed, _ = outcome(Sample("all", name, text, wire.reasoning), [text])
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == calls
    assert parsed.content.rstrip("\n") == content
    assert parsed.reasoning == (thought if wire.thinking else "")
    assert not parsed.failures


@pytest.mark.parametrize("name", sorted(WIRES))
def test_without_tools_a_call_is_content(name: str) -> None:
    wire = WIRES[name]
    sample = Sample("none", name, wire.write("", [("get_weather", {"city": "Paris"})]))
    parser = make_parser(sample, has_tools=False)
    collector = Collector()
    collector.add(parser.push(sample.text))
    collector.add(parser.finish())
    parsed = collector.parsed()
    assert not parsed.calls
    assert not parsed.failures
    assert "Paris" in parsed.content
    assert "<|" not in parsed.content.replace('<|"|>', "")


@pytest.mark.parametrize("name", [name for name in TOOL_FORMATS if TOOL_FORMATS[name].frame])
def test_a_forced_call_is_read(name: str) -> None:
    """Arguments that a grammar forced into a format's frame make a call of that format."""
    format = TOOL_FORMATS[name]
    assert format.frame is not None
    begin, end = (part.replace("NAME", "get_weather") for part in format.frame)
    functions = {"get_weather": {}}
    text = begin + '{"city": "Paris"}' + end
    parsed = parse(text, format, get_reasoning_format("none"), functions=functions)
    assert [(call.name, call.arguments) for call in parsed.calls] == [
        ("get_weather", '{"city": "Paris"}')
    ]
    assert parsed.calls[0].is_complete
    assert not parsed.failures
    assert parsed.content == ""


def test_push_after_a_call_says_it_has_ended_without_more_text() -> None:
    sample = Sample("prompt end", "hermes", "")
    parser = make_parser(sample)
    events = parser.push('<tool_call>{"name": "list_files", "arguments": {}}')
    assert [type(event).__name__ for event in events][-1] == "CallEnded"


def test_empty_pieces_say_nothing() -> None:
    parser = make_parser(Sample("empty", "hermes", ""))
    assert parser.push("") == []
    assert parser.finish() == []


def test_text_that_looks_like_calls_over_and_over_costs_little() -> None:
    """Openers that nothing comes of are read again; how much of that is done is bounded."""
    start = time.process_time()
    quoted = '<tool_call>{"name": "get_weather", "arguments": {"city": "' * 4_000
    text = f"<think>\n{quoted}\n</think>\n\nHello."
    parsed, _ = outcome(
        Sample("many", "hermes", text, "qwen3"), cut(text, range(64, len(text), 64))
    )
    assert parsed.content == "Hello."
    assert not parsed.calls
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", [*sorted(WIRES), "none"])
def test_deep_nesting_ends_no_parser(name: str) -> None:
    format = TOOL_FORMATS[name]
    for opener in (*format.openers, *format.quiet_openers, ""):
        for deep in ('{"function":', "[", "f(a=[", "f(a={'a':", '{"name":"f","arguments":{"a":'):
            text = opener + deep * 20_000
            parse(text, format, get_reasoning_format("none"), functions={"f": {}})


def test_the_namespace_before_a_name_is_dropped() -> None:
    sample = Sample("named", "hermes", '<tool_call>{"name": "functions.list_files"}</tool_call>')
    assert outcome(sample, [sample.text])[0].calls[0].name == "list_files"


def test_what_candidates_cost_does_not_depend_on_the_split(monkeypatch) -> None:
    monkeypatch.setattr(parser_module, "_MOST_REREAD_CHARS", 300)
    quoted = '<tool_call>{"name": "get_weather", "arguments": {"city": "'
    for num_thoughts in range(1, 12):
        text = f"<think>{quoted * num_thoughts}</think>\nSo:" + '\n{"name": "list_files"}' * 3
        sample = Sample("cost", "json", text, "qwen3")
        whole = outcome(sample, [sample.text])
        for place in range(len(text)):
            assert outcome(sample, cut(text, [place])) == whole
    sample = Sample("lines", "json", '\n{"name": "list_files", "arguments": 1' * 20)
    whole = outcome(sample, [sample.text])
    for place in range(len(sample.text)):
        assert outcome(sample, cut(sample.text, [place])) == whole


def test_ids_are_the_wires_where_its_format_has_ids_and_never_twice() -> None:
    def ids(tools: str, text: str) -> list[str]:
        parsed, _ = outcome(Sample("ids", tools, text), [text])
        assert len(parsed.calls) == 2
        return [call.id for call in parsed.calls]

    one = '<tool_call>{"id": "x", "name": "list_files"}</tool_call>'
    assert ids("hermes", one * 2) == ["call-0", "call-1"]
    assert ids("mistral", "[TOOL_CALLS]list_files[CALL_ID]abcdefgh1[ARGS]{}" * 2) == [
        "abcdefgh1",
        "nine-1",
    ]
    assert ids("mistral", "[TOOL_CALLS]list_files[CALL_ID]abc[ARGS]{}[TOOL_CALLS]list_files{}") == [
        "nine-0",
        "nine-1",
    ]
    call = "<|tool_call_begin|>functions.list_files:7<|tool_call_argument_begin|>{}"
    assert ids("kimi_k2", call + "<|tool_call_end|>" + call) == [
        "functions.list_files:7",
        "indexed-1",
    ]


def test_made_ids_have_the_form_that_templates_ask_for() -> None:
    assert re.fullmatch(r"call_[0-9a-f]{24}", make_id("call", "f", 0))
    assert re.fullmatch(r"[A-Za-z0-9]{9}", make_id("nine", "f", 0))
    assert make_id("indexed", "f", 3) == "functions.f:3"
    assert make_id("call", "f", 0) != make_id("call", "f", 0)


def test_nothing_can_be_pushed_behind_the_end() -> None:
    parser = make_parser(Sample("end", "hermes", ""))
    parser.finish()
    with pytest.raises(RuntimeError, match="ended"):
        parser.push("x")


def test_a_failure_keeps_the_text_of_its_own_call_only() -> None:
    call = (
        "<|tool_call_begin|>functions.list_files:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    )
    text = (
        f"<|tool_calls_section_begin|>{call}<|tool_call_begin|>a b<|tool_call_argument_begin|>{{}}"
    )
    parsed, _ = outcome(Sample("second", "kimi_k2", text), [text])
    assert [call.is_complete for call in parsed.calls] == [True]
    assert [(failure.reason, failure.text) for failure in parsed.failures] == [
        ("bad_name", "<|tool_call_begin|>a b<|tool_call_argument_begin|>")
    ]
    assert parsed.failures[0].visible == "a b"
    assert parsed.content == "{}"


def test_text_behind_an_opener_is_not_held_for_long() -> None:
    parser = make_parser(Sample("held", "mistral", ""))
    events = parser.push("[TOOL_CALLS]" + "and so it goes on " * 40)
    assert [type(event).__name__ for event in events] == ["ParseFailed", "Content"]


@pytest.mark.parametrize("name", [n for n, tools in TOOL_FORMATS.items() if tools.frame])
def test_what_a_cut_leaves_of_forced_calls_is_never_text(name: str) -> None:
    tools = TOOL_FORMATS[name]
    called = [part.replace("NAME", "get_weather") for part in tools.frame or ()]
    call = '{"city": "Paris"}'.join(called)
    text = f"{call}\n{call}"
    inside_marks = re.compile(r"<\|[^>]*$|<$") if tools.channels else re.compile("(?!)")
    ends = [end for end in range(1, len(text)) if not inside_marks.search(text[:end])]
    for end in ends:
        parser = Parser(tools, get_reasoning_format("none"), functions=FUNCTIONS, is_forced=True)
        collector = Collector()
        collector.add(parser.push(text[: end // 2]))
        collector.add(parser.push(text[end // 2 : end]))
        collector.add(parser.finish(is_cut=True))
        parsed = collector.parsed()
        assert not parsed.content.strip(), text[:end]
        assert {failure.reason for failure in parsed.failures} <= {"truncated"}
        assert all(failure.text.strip() for failure in parsed.failures)
