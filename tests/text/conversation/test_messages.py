# SPDX-License-Identifier: Apache-2.0
"""Messages of every shape that OpenAI's clients send become turns."""

import pytest

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.text.conversation import (
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    read_messages,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}


def call(arguments):
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "no"}], "a\nno"),
    ],
)
def test_content_is_one_text(content, text):
    [turn] = read_messages([{"role": "user", "content": content}])
    assert (turn.role, turn.text) == ("user", text)


def test_a_message_without_content_has_an_empty_one():
    assert read_messages([{"role": "assistant"}]) == (Turn("assistant", (Text(""),)),)


def test_developer_is_system_and_function_is_tool():
    assert read_messages(
        [
            {"role": "developer", "content": "x", "name": "n"},
            {"role": "tool", "content": "y", "tool_call_id": "c1", "name": None},
            {"role": "function", "content": "z", "name": "f"},
        ]
    ) == (
        Turn("system", (Text("x"),)),
        Turn("tool", (ToolResult("c1", "y"),)),
        Turn("tool", (ToolResult("", "z", "f"),)),
    )


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_assistants_reasoning_is_found_by_either_name(name):
    [turn] = read_messages([{"role": "assistant", "content": "x", name: "why"}])
    assert turn.parts == (Reasoning("why"), Text("x"))
    [other] = read_messages([{"role": "user", "content": "x", name: "why"}])
    assert other.parts == (Text("x"),)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", ""),
        ({"a": 1}, '{"a":1}'),
        ('{"a": ', '{"a": '),
        (None, "{}"),
    ],
)
def test_arguments_stay_as_they_were_written(arguments, written):
    [turn] = read_messages([{"role": "assistant", "tool_calls": [call(arguments)]}])
    assert turn.calls == (ToolCall("c1", "f", written),)


def test_a_custom_tools_text_is_its_one_argument():
    sent = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    [turn] = read_messages([{"role": "assistant", "tool_calls": [sent]}])
    assert turn.calls == (ToolCall("c2", "patch", '{"input":"*** Begin"}'),)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"content": "x"}, "messages[0]"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [3]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "messages[0].tool_calls[0]"),
        ("hi", "messages[0]"),
    ],
)
def test_malformed_messages_name_the_field(message, param):
    with pytest.raises(InvalidRequest) as refusal:
        read_messages([message])
    assert refusal.value.param == param


def test_messages_that_are_no_list():
    with pytest.raises(InvalidRequest, match="'messages' cannot be used"):
        read_messages("hi")


def test_images_are_refused_by_name_and_noted_where_a_tool_took_them():
    with pytest.raises(UnsupportedParameter, match="image_url") as refusal:
        read_messages([{"role": "user", "content": [IMAGE]}])
    assert refusal.value.param == "messages[0].content[0].type"
    [turn] = read_messages([{"role": "tool", "tool_call_id": "c1", "content": [IMAGE]}])
    assert "an image or file was here" in turn.results[0].text


def test_parts_that_are_left_out_are_logged_where_no_answer_can_name_them(caplog):
    parts = [{"type": "text", "text": "x"}, {"type": "chart"}]
    with caplog.at_level("WARNING"):
        [turn] = read_messages([{"role": "assistant", "content": parts}])
    assert turn.parts == (Text("x"),)
    assert "chart" in caplog.text
