# SPDX-License-Identifier: Apache-2.0
"""How a model is spoken to and understood, told from its template, or as the server is told."""

import pytest

from tests.server.fake_engine import ByteTokenizer
from tests.text.conversation.sources import template
from tokenlight.base.errors import ConfigError
from tokenlight.text import ChatTemplate
from tokenlight.text.conversation import (
    Conversation,
    ReasoningWish,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from tokenlight.text.dialect import Dialect
from tokenlight.text.parsing import CallStarted
from tokenlight.wire import ThinkingBudget

HI = (Turn("user", (Text("hi"),)),)
TOOL = Tool(name="bash", parameters={"type": "object"})


def dialect(name: str, **parsers: str) -> Dialect:
    return Dialect.of(template(name), ByteTokenizer(), **parsers)


@pytest.mark.parametrize(
    ("name", "tools", "reasoning"),
    [
        ("chatml", "json", "none"),
        ("alternating", "json", "none"),
        ("tools", "hermes", "qwen3"),
        ("tags", "qwen3_coder", "qwen3"),
        ("nines", "mistral", "none"),
    ],
)
def test_formats_are_told_from_the_template(name, tools, reasoning):
    made = dialect(name)
    assert (made.tools.name, made.reasoning.name) == (tools, reasoning)


def test_whoever_starts_the_server_decides():
    made = dialect("tools", tool_call_parser="llama3_json", reasoning_parser="deepseek_r1")
    assert (made.tools.name, made.reasoning.name) == ("llama3_json", "deepseek_r1")
    with pytest.raises(ConfigError, match="nonsense"):
        dialect("tools", tool_call_parser="nonsense")


def test_a_template_for_tools_alone_is_told_as_well():
    plain, with_tools = template("chatml"), template("tools")
    assert "<tool_call>" not in (plain.source or "")
    made = Dialect.of(ChatTemplate(plain.source, tool_source=with_tools.source), ByteTokenizer())
    assert (made.tools.name, made.traits.has_tools) == ("hermes", True)
    hi = Conversation(turns=HI, tools=(TOOL,))
    assert made.render(hi) == dialect("tools").render(hi)
    assert made.render(Conversation(turns=HI)) == dialect("chatml").render(Conversation(turns=HI))


SESSION = (
    *HI,
    Turn("assistant", (Text("let me see"), ToolCall("a", "bash", '{"c": "a_call"}'))),
    Turn("tool", (ToolResult("a", "a_result", "bash"),)),
    Turn("system", (Text("a_late_word"),)),
    Turn("user", (Text("sum it up"),)),
)
NO_OTHER_ROLES = """{% for m in messages %}
{%- if m.role == "tool" %}{{ raise_exception("no tools") }}{% endif %}
{{- m.role }}: {{ m.content }}
{% endfor %}"""
FORGETFUL_OF_CALLS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
FORGETFUL_OF_LATE_SYSTEM = """{{ tools | tojson }}{% for m in messages %}
{%- if m.role != "system" or loop.first %}{{ m.role }}: {{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}{% endif %}
{% endfor %}"""


@pytest.mark.parametrize("tools", [(), (TOOL,)], ids=["plain", "tools"])
@pytest.mark.parametrize("tool_source", ["tools", "forgetful", "knows_none"])
@pytest.mark.parametrize(
    "source", [NO_OTHER_ROLES, FORGETFUL_OF_CALLS], ids=["no other roles", "forgetful of calls"]
)
def test_no_word_is_lost_between_two_templates(source, tool_source, tools):
    tool_sources = {
        "tools": template("tools").source,
        "forgetful": FORGETFUL_OF_LATE_SYSTEM,
        "knows_none": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    two = ChatTemplate(source, tool_source=tool_sources[tool_source])
    text = Dialect.of(two, ByteTokenizer()).render(Conversation(turns=SESSION, tools=tools))
    words = ("hi", "let me see", "bash", "a_call", "a_result", "a_late_word", "sum it up")
    start = text.find("let me see")
    places = [text.find(word, 0 if word == "hi" else start) for word in words]
    assert -1 not in places, text
    assert places == sorted(places), text


def test_a_model_without_template_has_a_dialect():
    assert Dialect.of(ChatTemplate(None), ByteTokenizer()).tools.name == "json"


def test_calls_are_read_only_where_they_may_be_made():
    made = dialect("tools")
    said = '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>'
    for mode, is_call in (("auto", True), ("none", False)):
        conversation = Conversation(turns=HI, tools=(TOOL,), tool_choice=ToolChoice(mode=mode))
        events = made.parser(conversation, made.render(conversation)).push(said)
        assert any(isinstance(event, CallStarted) for event in events) == is_call


@pytest.mark.parametrize(("opened", "after"), [("<think>\n", "</think>"), ("", "")])
def test_rules_hold_from_the_end_of_reasoning_that_the_prompt_opens(opened, after):
    assert dialect("tools").grammar("start: \n", f"<|im_start|>assistant\n{opened}").after == after


class MarkedTokenizer(ByteTokenizer):
    """Has tokens for the marks around reasoning."""

    def encode(self, text, **options):
        marks = {"<think>": [300], "</think>": [301]}
        return marks.get(text) or super().encode(text, **options)


@pytest.mark.parametrize(("opened", "opener"), [("<think>\n", None), ("", 300)])
def test_reasoning_is_bounded_by_the_tokens_around_it(opened, opener):
    made = Dialect.of(template("tools"), MarkedTokenizer())
    conversation = Conversation(turns=HI, reasoning=ReasoningWish(is_on=True, budget_tokens=7))
    found = made.thinking(conversation, f"<|im_start|>assistant\n{opened}")
    assert found == ThinkingBudget(num_tokens=7, opener=opener, closer=301, ending=(ord("\n"), 301))


@pytest.mark.parametrize(
    ("tokenizer", "wish"),
    [
        (ByteTokenizer(), ReasoningWish(is_on=True, budget_tokens=7)),
        (MarkedTokenizer(), ReasoningWish(is_on=True)),
        (MarkedTokenizer(), ReasoningWish(is_on=False, budget_tokens=7)),
    ],
)
def test_reasoning_that_cannot_or_need_not_be_bounded_is_not(tokenizer, wish):
    made = Dialect.of(template("tools"), tokenizer)
    assert made.thinking(Conversation(turns=HI, reasoning=wish), "") is None
