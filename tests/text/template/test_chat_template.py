# SPDX-License-Identifier: Apache-2.0
"""Texts and ids are those of transformers' apply_chat_template, tool turns included."""

import time

import pytest
from jinja2 import TemplateError
from tokenizers import AddedToken
from transformers import AutoTokenizer, GemmaTokenizer, LlamaTokenizer, Qwen2Tokenizer

from tests.text.template.families import (
    FAMILIES,
    PLAIN_CONVERSATIONS,
    TOOL_CONVERSATIONS,
    TOOLS,
)
from tests.text.tokenizer.saved import byte_level, folder, sentencepiece
from tokenlight.base.errors import InvalidRequest
from tokenlight.text import ChatTemplate, Tokenizer
from tokenlight.text.chat import chat_token_ids, normalise_messages


def cases():
    for name, family in FAMILIES.items():
        for title, messages in PLAIN_CONVERSATIONS.items():
            yield name, title, messages, None
        for title, messages in TOOL_CONVERSATIONS.items() if family.has_tools else ():
            yield name, title, messages, TOOLS
            yield name, f"{title}, no tools given", messages, None


# What a family's template itself raises an exception for.
REFUSED = {("llama3", "two calls")}
CASES = [pytest.param(*case, id=f"{case[0]}: {case[1]}") for case in cases()]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """By family: transformers' tokenizer, and ours with its template, of the same folder."""
    found = {}
    for name, family in FAMILIES.items():
        made = {
            "byte-level": lambda: byte_level(Qwen2Tokenizer, bos_token="<s>", eos_token="</s>"),
            "spm-llama": lambda: sentencepiece(LlamaTokenizer, "spm-llama"),
            "spm-gemma": lambda: sentencepiece(
                GemmaTokenizer, "spm-gemma", bos_token="<s>", eos_token="</s>", mask_token="<unk>"
            ),
        }[family.vocabulary]()
        made.add_tokens([AddedToken(token, special=True) for token in family.special_tokens])
        made.chat_template = family.template
        path = tmp_path_factory.mktemp("families") / name
        made.save_pretrained(path)
        checkpoint = folder(path, template=family.template)
        ours = Tokenizer.from_checkpoint(checkpoint), ChatTemplate.from_checkpoint(checkpoint)
        found[name] = AutoTokenizer.from_pretrained(path), *ours
    return found


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize(("name", "title", "messages", "tools"), CASES)
def test_texts_and_ids_are_transformers(pairs, name, title, messages, tools, add_generation_prompt):
    theirs, tokenizer, template = pairs[name]
    options = {"tools": tools, "add_generation_prompt": add_generation_prompt}
    normal = normalise_messages(messages)
    if (name, title.removesuffix(", no tools given")) in REFUSED:
        with pytest.raises(TemplateError) as refusal:
            theirs.apply_chat_template(normal, tokenize=False, **options)
        with pytest.raises(InvalidRequest, match="refuses these messages") as ours:
            chat_token_ids(tokenizer, template, messages, **options)
        assert str(refusal.value) in ours.value.message
        return
    text = theirs.apply_chat_template(normal, tokenize=False, **options)
    assert template.render(normal, **options) == text
    ids = theirs.apply_chat_template(normal, tokenize=True, **options)["input_ids"]
    assert chat_token_ids(tokenizer, template, messages, **options) == ids


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_variables_reach_the_template(pairs, enable_thinking):
    theirs, tokenizer, template = pairs["qwen3"]
    messages = PLAIN_CONVERSATIONS["one turn"]
    variables = {"enable_thinking": enable_thinking}
    expected = theirs.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, **variables
    )["input_ids"]
    assert chat_token_ids(tokenizer, template, messages, variables=variables) == expected


def test_the_default_models_own_template(tokenizer, checkpoint):
    template = ChatTemplate.from_checkpoint(checkpoint)
    theirs = byte_level(Qwen2Tokenizer, chat_template=checkpoint.chat_template)
    for messages in PLAIN_CONVERSATIONS.values():
        text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert template.render(messages) == text
        assert (
            tokenizer.decode(chat_token_ids(tokenizer, template, messages), with_special=True)
            == text
        )


def test_a_model_without_a_template_cannot_chat():
    with pytest.raises(InvalidRequest, match="no chat template"):
        ChatTemplate(None).render([{"role": "user", "content": "hi"}])


def test_the_templates_own_refusal_is_passed_on(pairs):
    _, _, template = pairs["gemma3"]
    with pytest.raises(InvalidRequest, match="refuses these messages: Conversation roles must"):
        template.render([{"role": "assistant", "content": "a"}])


def test_a_long_conversation_is_rendered_quickly(pairs):
    messages = [
        {"role": role, "content": "word " * 400}
        for _ in range(200)
        for role in ("user", "assistant")
    ]
    for _, _, template in pairs.values():
        start_s = time.process_time()
        template.render(messages)
        assert time.process_time() - start_s < 1
