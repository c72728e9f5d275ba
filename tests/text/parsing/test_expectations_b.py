# SPDX-License-Identifier: Apache-2.0
"""What agent users expect of tool calls, as far as the parser decides it; a test for each."""

import json
import random
import time

import pytest

from tests.text.parsing.outputs import ALL, Sample
from tests.text.parsing.splits import cut, events_of, make_parser, outcome, random_cut
from tests.text.parsing.wires import WIRES
from tokenlight.text.parsing import (
    TOOL_FORMATS,
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Content,
    ParseFailed,
    Reasoning,
    detect,
)
from tokenlight.text.parsing.formats import get_reasoning_format, get_tool_format

CALL = ("get_weather", {"city": "Paris", "days": 3})
CALLING = [name for name in TOOL_FORMATS if name != "none"]


def wire_sample(name: str, calls: list[tuple[str, dict]], content: str = "") -> Sample:
    wire = WIRES[name]
    return Sample("made", name, wire.write(content, calls), wire.reasoning, starts_inside=False)


@pytest.mark.parametrize("name", sorted(WIRES))
def test_t_b1_any_split_gives_the_same_calls(name: str) -> None:
    sample = wire_sample(name, [CALL])
    whole = outcome(sample, [sample.text])
    assert [call.name for call in whole[0].calls] == ["get_weather"]
    assert json.loads(whole[0].calls[0].arguments) == CALL[1]
    rng = random.Random(name)
    for _ in range(64):
        pieces = random_cut(sample.text, rng)
        assert outcome(sample, pieces) == whole, pieces


@pytest.mark.parametrize("name", sorted(WIRES))
def test_t_b2_argument_deltas_joined_are_the_arguments_byte_for_byte(name: str) -> None:
    sample = wire_sample(name, [CALL])
    whole, _ = outcome(sample, [sample.text])
    deltas = [
        event.text for event in events_of(sample, sample.text) if isinstance(event, ArgumentsDelta)
    ]
    assert "".join(deltas) == whole.calls[0].arguments
    if WIRES[name].is_raw:
        assert whole.calls[0].arguments == json.dumps(CALL[1])


def test_t_b3_streams_succeed_as_often_as_whole_texts_on_1000_cases() -> None:
    rng = random.Random(3)
    words = ["a b", '"', "\\", "{", "é", "日本", "\n", "'", "<", ">", "x" * 20]
    num_streamed = num_whole = 0
    for _ in range(1000):
        city = "".join(rng.choice(words) for _ in range(rng.randint(0, 6)))
        arguments = {"city": city, "days": rng.randint(-5, 5), "tags": [city]}
        sample = wire_sample("gemma4", [("get_weather", arguments)])
        for pieces in ([sample.text], random_cut(sample.text, rng)):
            parsed, _ = outcome(sample, pieces)
            is_right = [json.loads(call.arguments) for call in parsed.calls] == [arguments]
            if len(pieces) == 1:
                num_whole += is_right
            else:
                num_streamed += is_right
    assert num_streamed == num_whole == 1000


@pytest.mark.parametrize("size", range(1, 9))
def test_t_b4_pieces_of_one_to_eight_characters_give_the_same(size: int) -> None:
    for sample in ALL:
        pieces = cut(sample.text, range(size, len(sample.text), size))
        assert outcome(sample, pieces) == outcome(sample, [sample.text]), sample


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: f"{sample.tools}: {sample.name}")
def test_t_b5_no_control_token_is_ever_content(sample: Sample) -> None:
    parsed, _ = outcome(sample, [sample.text + "<|im_end|><|tool_call_end|>"])
    for text in (parsed.content, parsed.reasoning):
        assert "<|im_end|>" not in text
        assert "<|tool" not in text
        assert "<\uff5c" not in text


# One format of each form; the others in `make ci-slow`.
FORMS = ("hermes", "qwen3_coder", "kimi_k2", "pythonic", "harmony")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FORMS else pytest.mark.slow)
        for name in sorted(WIRES)
        if name != "gemma3"  # its fence is closed by what a body may hold
    ],
)
def test_t_b5_a_megabyte_of_arguments_passes_in_linear_time(name: str) -> None:
    """Four times the text in pieces of a few bytes: four times the time, not sixteen."""
    seconds = []
    for size in (60_000, 240_000, 1_000_000):
        body = "0123456789 line of code\n" * (size // 24)
        sample = wire_sample(name, [("write_file", {"content": body})])
        pieces = cut(sample.text, range(16, len(sample.text), 16))
        parser = make_parser(sample)
        start = time.process_time()
        deltas = [event for piece in pieces for event in parser.push(piece)]
        deltas += parser.finish()
        seconds.append(time.process_time() - start)
        arguments = "".join(event.text for event in deltas if isinstance(event, ArgumentsDelta))
        assert json.loads(arguments) == {"content": body}
    assert seconds[2] < 12 * max(seconds[1], 0.01)
    assert seconds[2] < 5


@pytest.mark.parametrize("name", sorted(WIRES))
def test_t_b6_arguments_stream_as_they_are_decided(name: str) -> None:
    """Token by token, a string's text comes with its token: it is not kept until the call's end."""
    body = "abcdefghij" * 50
    sample = wire_sample(name, [("write_file", {"content": body})])
    parser = make_parser(sample)
    start = sample.text.index(body)
    for place, char in enumerate(sample.text[: start + len(body)]):
        events = parser.push(char)
        if place == start:
            sent = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
            assert sent.endswith("a")
        elif place > start:
            assert [event.text for event in events if isinstance(event, ArgumentsDelta)] == [char]


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("behind", ["", " then prose", "{", '{"name": 1}', "<x>", "\n\n"])
def test_t_b7_an_opener_is_a_call_or_a_failure(name: str, behind: str) -> None:
    for opener in TOOL_FORMATS[name].openers:
        text = f"I do. {opener}{behind}"
        events = events_of(Sample("opener", name, text), [text])
        if not any(isinstance(event, CallStarted) for event in events):
            assert [event.parser for event in events if isinstance(event, ParseFailed)] == [name]
            kept = "".join(e.text for e in events if isinstance(e, Content | ParseFailed))
            assert kept.split() == text.split()


@pytest.mark.parametrize("name", sorted(WIRES))
def test_t_b8_a_cut_call_is_marked_incomplete(name: str) -> None:
    sample = wire_sample(name, [("write_file", {"path": "a", "content": "some text"})])
    end = sample.text.index("some t") + 4
    cut_short = Sample("cut", name, sample.text[:end], is_cut=True)
    parsed, kinds = outcome(cut_short, [cut_short.text])
    assert [(call.name, call.is_complete) for call in parsed.calls] == [("write_file", False)]
    assert not parsed.failures
    assert kinds[-1] == "CallEnded"


@pytest.mark.parametrize("name", [name for name in sorted(WIRES) if WIRES[name].is_parallel])
def test_t_b9_several_calls_stream_one_after_the_other(name: str) -> None:
    calls = [("list_files", {}), CALL, ("write_file", {"path": "x", "content": "y"})]
    sample = wire_sample(name, calls)
    open_index = None
    seen = []
    for event in events_of(sample, sample.text):
        match event:
            case CallStarted():
                assert open_index is None
                open_index = event.index
                seen.append(event.name)
            case ArgumentsDelta():
                assert event.index == open_index
            case CallEnded():
                assert event.index == open_index
                open_index = None
    assert seen == [called for called, _ in calls]
    parsed, _ = outcome(sample, sample.text)
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == calls
    assert len({call.id for call in parsed.calls}) == len(calls)


def test_t_b9_the_parser_is_picked_from_the_template() -> None:
    tools, reasoning = detect("{{ '<tool_call>' }} <function={{ name }}> {{ '<think>' }}")
    assert tools is get_tool_format("qwen3_coder")
    assert reasoning is get_reasoning_format("qwen3")


@pytest.mark.parametrize("name", sorted(WIRES))
def test_t_b10_a_failure_names_the_parser_and_the_reason(name: str) -> None:
    sample = wire_sample(name, [("write_file", {"path": "a", "content": "some text"})])
    end = sample.text.index("some t") + 4
    events = events_of(Sample("ended", name, sample.text[:end]), [sample.text[:end]])
    failures = [event for event in events if isinstance(event, ParseFailed)]
    assert [(failure.parser, failure.reason) for failure in failures] == [(name, "unterminated")]
    assert failures[0].index == 0


def test_t_b11_what_is_called_complete_is_one_json_object() -> None:
    """Also after damage: arguments called complete can always be sent back and parsed."""
    rng = random.Random(11)
    num_complete = 0
    for sample in ALL * 10:
        text = sample.text
        for _ in range(rng.randint(0, 3)):
            place = rng.randint(0, len(text))
            text = (
                text[:place]
                + rng.choice(["", '"', "}", "</parameter>", "\\", "\x00"])
                + (text[place + rng.randint(0, 3) :])
            )
        damaged = Sample("damaged", sample.tools, text, sample.reasoning_format)
        for call in outcome(damaged, [text])[0].calls:
            if call.is_complete:
                num_complete += 1
                assert isinstance(json.loads(call.arguments), dict)
    assert num_complete > 200


def test_content_and_reasoning_are_told_apart_in_order() -> None:
    sample = Sample("order", "hermes", "<think>\na\n</think>\n\nb", "qwen3")
    assert events_of(sample, [sample.text]) == [Reasoning("a"), Content("b")]
