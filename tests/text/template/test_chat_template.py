# SPDX-License-Identifier: Apache-2.0
"""Texts and ids are those of transformers' apply_chat_template, tool turns included."""

import time

import pytest
from jinja2 import TemplateError
from transformers import Qwen2Tokenizer

from tests.text.template.families import PLAIN_CONVERSATIONS
from tests.text.template.pairs import cases, make_pairs
from tests.text.tokenizer.saved import byte_level
from tokenlight.base.errors import CheckpointCorrupt, InvalidRequest
from tokenlight.text import ChatTemplate

CASES = [
    pytest.param(case, id=f"{case.family}: {case.title}{', tools' if case.tools else ''}")
    for case in cases()
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return make_pairs(tmp_path_factory.mktemp("families"))


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_t_c7(pairs, case, add_generation_prompt):
    """Texts and ids are those of transformers, per template, tool turns included."""
    pair = pairs[case.family]
    options = {"tools": case.tools, "add_generation_prompt": add_generation_prompt}
    normal = case.template_messages
    if case.is_refused:
        with pytest.raises(TemplateError) as refusal:
            pair.theirs.apply_chat_template(normal, tokenize=False, **options)
        with pytest.raises(InvalidRequest, match="refuses these messages") as ours:
            pair.template.render(normal, **options)
        assert str(refusal.value) in ours.value.message
        return
    text = pair.theirs.apply_chat_template(normal, tokenize=False, **options)
    assert pair.template.render(normal, **options) == text
    ids = pair.theirs.apply_chat_template(normal, tokenize=True, **options)["input_ids"]
    assert pair.token_ids(normal, **options) == ids


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_variables_reach_the_template(pairs, enable_thinking):
    pair = pairs["qwen3"]
    messages = PLAIN_CONVERSATIONS["one turn"]
    variables = {"enable_thinking": enable_thinking}
    expected = pair.theirs.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, **variables
    )["input_ids"]
    assert pair.token_ids(messages, **variables) == expected


def test_the_default_models_own_template(tokenizer, checkpoint):
    template = ChatTemplate.from_checkpoint(checkpoint)
    theirs = byte_level(Qwen2Tokenizer, chat_template=checkpoint.chat_template)
    for messages in PLAIN_CONVERSATIONS.values():
        text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert template.render(messages) == text
        assert tokenizer.decode(tokenizer.encode(text, add_bos=False), with_special=True) == text


def test_tools_may_have_a_template_of_their_own():
    named = {"default": "{{ bos_token }}plain", "tool_use": "{{ bos_token }}{{ tools | length }}"}
    theirs = byte_level(Qwen2Tokenizer, chat_template=named)
    theirs.bos_token = "<s>"
    template = ChatTemplate(named["default"], {"bos_token": "<s>"}, tool_source=named["tool_use"])
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}
    messages = [{"role": "user", "content": "hi"}]
    for tools in (None, [tool]):
        expected = theirs.apply_chat_template(messages, tools=tools, tokenize=False)
        assert template.render(messages, tools=tools) == expected
    with pytest.raises(CheckpointCorrupt, match=r"^the chat template, line 1"):
        ChatTemplate("plain", tool_source="{% if")


def test_a_model_without_a_template_cannot_chat():
    with pytest.raises(InvalidRequest, match="no chat template"):
        ChatTemplate(None).render([{"role": "user", "content": "hi"}])


def test_the_templates_own_refusal_is_passed_on(pairs):
    with pytest.raises(InvalidRequest, match="refuses these messages: Conversation roles must"):
        pairs["gemma3"].template.render([{"role": "assistant", "content": "a"}])


def test_a_long_conversation_is_rendered_quickly(pairs):
    messages = [
        {"role": role, "content": "word " * 400}
        for _ in range(200)
        for role in ("user", "assistant")
    ]
    for pair in pairs.values():
        start_s = time.process_time()
        pair.template.render(messages)
        assert time.process_time() - start_s < 1
