# SPDX-License-Identifier: Apache-2.0
"""What agent users expect of tools together with reasoning, as far as the parser decides it."""

import json
import random

import pytest

from tests.text.parsing.outputs import Sample
from tests.text.parsing.splits import make_parser, outcome, random_cut
from tests.text.parsing.wires import FUNCTIONS, WIRES
from tokenlight.text.parsing import Content, Reasoning, parse
from tokenlight.text.parsing.formats import (
    REASONING_FORMATS,
    get_reasoning_format,
    get_tool_format,
)

CALL = ("get_weather", {"city": "Paris", "days": 3})
THINKING = sorted(name for name in WIRES if WIRES[name].thinking)
TAGGED = [name for name in THINKING if name != "harmony"]


def inside(name: str, text: str) -> Sample:
    """An output that is in reasoning from its first character on."""
    return Sample("inside", name, text, WIRES[name].reasoning, starts_inside=True)


def closer(name: str) -> str:
    return get_reasoning_format(WIRES[name].reasoning).closers[0]


@pytest.mark.parametrize("name", TAGGED)
def test_t_c1_a_call_that_ends_unclosed_reasoning_is_delivered(name: str) -> None:
    sample = inside(name, "I call.\n" + WIRES[name].write("", [CALL]))
    parsed, kinds = outcome(sample, [sample.text])
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == [CALL]
    assert parsed.reasoning.rstrip() == "I call."
    assert parsed.content == ""
    assert kinds[0] == "Reasoning"


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize(
    "around", ["`{}`", '"{}", as they say.', "{}\nis the form.", "```\n{}\n```"]
)
def test_t_c2_a_quoted_call_in_reasoning_is_reasoning(name: str, around: str) -> None:
    quoted = around.format(WIRES[name].write("", [CALL]).strip())
    sample = inside(name, f"Like this:\n{quoted}{closer(name)}Hello.")
    rng = random.Random(name)
    for pieces in ([sample.text], *(random_cut(sample.text, rng) for _ in range(20))):
        parsed, _ = outcome(sample, pieces)
        assert not parsed.calls
        assert not parsed.failures
        assert parsed.content == "Hello."
        assert "Paris" in parsed.reasoning


@pytest.mark.parametrize("name", TAGGED)
def test_t_c2_an_unknown_tool_in_reasoning_is_reasoning(name: str) -> None:
    sample = inside(name, "So:\n" + WIRES[name].write("", [("example_tool", {"city": "Rome"})]))
    parsed, _ = outcome(sample, [sample.text])
    assert not parsed.calls
    assert "Rome" in parsed.reasoning


def test_t_c2_an_unfinished_example_does_not_hold_the_answer_back() -> None:
    parser = make_parser(inside("hermes", ""))
    parser.push('Like <tool_call>{"name": "get_weather", "arguments": {"city": "...')
    assert parser.push("\n</think>\n\nHello") == [
        Reasoning('<tool_call>{"name": "get_weather", "arguments": {"city": "...'),
        Content("Hello"),
    ]


@pytest.mark.parametrize("name", THINKING)
def test_t_c3_a_forced_call_behind_reasoning_is_read(name: str) -> None:
    format = get_tool_format(name)
    thinking = WIRES[name].thinking
    assert format.frame is not None
    assert thinking is not None
    begin, end = (part.replace("NAME", "get_weather") for part in format.frame)
    parsed = parse(
        thinking("I must.") + begin + '{"city": "Rome"}' + end,
        format,
        get_reasoning_format(WIRES[name].reasoning),
        functions=FUNCTIONS,
    )
    assert parsed.reasoning == "I must."
    assert [(call.name, call.arguments) for call in parsed.calls] == [
        ("get_weather", '{"city": "Rome"}')
    ]


@pytest.mark.parametrize("name", [name for name in REASONING_FORMATS if name != "none"])
def test_t_c4b_no_part_of_a_marker_leaks_in_any_split(name: str) -> None:
    format = get_reasoning_format(name)
    for opener in format.openers:
        for end in format.closers:
            text = f"{opener}deep{end}answer"
            for place in range(len(text) + 1):
                parser = make_parser(Sample("split", "hermes", text, name, starts_inside=False))
                events = [*parser.push(text[:place]), *parser.push(text[place:]), *parser.finish()]
                reasoning = [event.text for event in events if isinstance(event, Reasoning)]
                content = [event.text for event in events if isinstance(event, Content)]
                assert "".join(reasoning) == "deep"
                assert "".join(content) == "answer"


@pytest.mark.parametrize("name", THINKING)
def test_t_c4b_tool_choice_none_suppresses_calls(name: str) -> None:
    wire = WIRES[name]
    assert wire.thinking is not None
    text = wire.thinking("Hm.") + wire.write("", [CALL])
    format, reasoning = get_tool_format(name), get_reasoning_format(wire.reasoning)
    parsed = parse(text, format, reasoning, functions=None)
    assert not parsed.calls
    assert not parsed.failures
    assert parsed.reasoning == "Hm."
    assert "Paris" in parsed.content


@pytest.mark.parametrize("name", THINKING)
def test_t_c4b_no_call_behind_reasoning_is_dropped_in_1000_runs(name: str) -> None:
    rng = random.Random(name)
    words = ["I", "think <", "a.b", "\n", "{", "<tool", "</", "don't", '"x"', "<b>", "``"]
    wire = WIRES[name]
    assert wire.thinking is not None
    num_delivered = 0
    for number in range(1000):
        thought = "Now " + " ".join(rng.choice(words) for _ in range(rng.randint(0, 8))) + "."
        text = wire.thinking(thought) + wire.write("", [("get_weather", {"days": number})])
        parsed, _ = outcome(Sample("run", name, text, wire.reasoning), random_cut(text, rng))
        is_right = [json.loads(call.arguments) for call in parsed.calls] == [{"days": number}]
        num_delivered += is_right and parsed.reasoning == thought
    assert num_delivered == 1000


def test_the_prompt_says_whether_output_starts_inside() -> None:
    format = get_reasoning_format("qwen3")
    assert format.is_open_in("<|im_start|>assistant\n<think>\n")
    assert not format.is_open_in("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not format.is_open_in("what is <think>?<|im_start|>assistant\n")
    assert not get_reasoning_format("none").is_open_in("<think>")
