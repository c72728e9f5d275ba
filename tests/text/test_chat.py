# SPDX-License-Identifier: Apache-2.0
"""Messages of every shape that OpenAI's clients send become what templates want."""

import pytest

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.text import ChatTemplate
from tokenlight.text.chat import chat_token_ids, normalise_messages


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
        ([{"type": "input_text", "text": "a"}, "b"], "a\nb"),
    ],
)
def test_content_is_one_text(content, text):
    [message] = normalise_messages([{"role": "user", "content": content}])
    assert message == {"role": "user", "content": text}


def test_a_message_without_content_has_an_empty_one():
    assert normalise_messages([{"role": "assistant"}]) == [{"role": "assistant", "content": ""}]


def test_developer_is_system_and_the_rest_is_kept():
    messages = [
        {"role": "developer", "content": "x", "name": "n"},
        {"role": "tool", "content": "y", "tool_call_id": "c1", "name": None},
    ]
    assert normalise_messages(messages) == [
        {"role": "system", "content": "x", "name": "n"},
        {"role": "tool", "content": "y", "tool_call_id": "c1"},
    ]
    assert messages[0]["role"] == "developer"


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_found_by_either_name(name):
    [message] = normalise_messages([{"role": "assistant", "content": "x", name: "why"}])
    assert message["reasoning_content"] == message["thinking"] == "why"
    [other] = normalise_messages([{"role": "user", "content": "x", name: "why"}])
    assert other == {"role": "user", "content": "x", name: "why"}


@pytest.mark.parametrize(
    ("arguments", "normal"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": ', '{"a": '),
        ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_argument_strings_become_objects(arguments, normal):
    [message] = normalise_messages([{"role": "assistant", "tool_calls": [call(arguments)]}])
    assert message["tool_calls"] == [call(normal)]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": [3]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "messages[0].tool_calls[0]"),
    ],
)
def test_malformed_messages_name_the_field(message, param):
    with pytest.raises(InvalidRequest) as refusal:
        normalise_messages([message])
    assert refusal.value.param == param


def test_no_messages():
    with pytest.raises(InvalidRequest, match="at least 1 message"):
        normalise_messages([])


def test_images_are_refused_by_name():
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    with pytest.raises(UnsupportedParameter, match="image_url") as refusal:
        normalise_messages([{"role": "user", "content": [part]}])
    assert refusal.value.param == "messages[0].content[0].type"


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt"])
def test_template_variables_cannot_replace_the_requests_fields(tokenizer, name):
    template = ChatTemplate("{{ messages[0].content }}")
    with pytest.raises(InvalidRequest) as refusal:
        chat_token_ids(tokenizer, template, [{"role": "user"}], variables={name: "x"})
    assert refusal.value.param == f"chat_template_kwargs.{name}"


def test_prompt_of_the_default_model(tokenizer, checkpoint):
    template = ChatTemplate.from_checkpoint(checkpoint)
    ids = chat_token_ids(tokenizer, template, [{"role": "user", "content": "hi"}])
    assert tokenizer.decode(ids, with_special=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == 1


def test_template_variables_reach_the_template(tokenizer):
    template = ChatTemplate("{{ mood }}")
    ids = chat_token_ids(tokenizer, template, [{"role": "user"}], variables={"mood": "calm"})
    assert tokenizer.decode(ids) == "calm"
