# SPDX-License-Identifier: Apache-2.0
"""Rules that force a text without end are followed a token at a time; what is short is forced."""

import json

import pytest

from tests.server.fake_engine import ByteTokenizer
from tokenlight.text.conversation import Conversation, Shape, Text, Tool, ToolChoice, Turn
from tokenlight.text.grammar.check import check_rules
from tokenlight.text.grammar.matching import Grammars
from tokenlight.text.grammar.rules import rules_of, shape_rules
from tokenlight.text.parsing import TOOL_FORMATS

# Without the bound each of these takes minutes to years, and their thread cannot be ended.
pytestmark = pytest.mark.timeout(60)

ENDLESS = {
    "repetitions in repetitions": Shape(regex="((a{1000}){1000}){1000}"),
    "with white space": Shape(regex="(a{ 1000}){ 1000000}"),
    "behind a choice": Shape(regex="[01](a{1000}){1000000}"),
    "a pattern and a length": Shape(
        json_schema={"type": "string", "pattern": "^a*$", "minLength": 10**9}
    ),
    "a pattern deep inside": Shape(
        json_schema={
            "type": "array",
            "items": {"type": "object", "patternProperties": {"^(b{1000}){99999}$": {}}},
        }
    ),
    "terminals of terminals": Shape(
        lark="start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(20)) + 'A20: "x"'
    ),
    "a repeated terminal": Shape(lark='start: A\nA: "x"{1000000000}\n'),
    "a grammar that asks for forcing": Shape(
        lark='%llguidance {"no_forcing": false}\nstart: /((a{1000}){1000}){1000}/'
    ),
}


@pytest.fixture(scope="module")
def grammars():
    return Grammars(ByteTokenizer)


def begun(grammars: Grammars, rules: str):
    check_rules(rules, param="x")
    return grammars.compile(rules).result(20).begin(after="")


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_text_is_followed_a_token_at_a_time(grammars, name):
    following = begun(grammars, shape_rules(ENDLESS[name]))
    assert following.forced() == []
    for _ in range(5):
        choice = following.choice()
        assert choice.are_allowed
        following.say(int(choice.token_ids[-1]))
    assert following.forced() == []


@pytest.mark.parametrize(
    ("shape", "start"),
    [
        (Shape(regex=r"year \d{4}-\d{2}"), b"year "),
        (Shape(choice=("yes, indeed", "yes, of course")), b"yes, "),
        (Shape(json_schema={"const": "x" * 1000}), b'"' + b"x" * 1000 + b'"'),
        (Shape(json_schema={"const": 1, "minLength": 10**9}), b"1"),
    ],
)
def test_a_text_that_is_short_is_forced_as_a_whole(grammars, shape, start):
    assert bytes(begun(grammars, shape_rules(shape)).forced()) == start


@pytest.mark.parametrize(("pattern", "is_whole"), [("^[a-z]{2,64}$", True), ("^a{200000}$", False)])
def test_a_tools_pattern_decides_for_its_calls(grammars, pattern, is_whole):
    schema = {"type": "object", "properties": {"a": {"pattern": pattern}}, "required": ["a"]}
    conversation = Conversation(
        turns=(Turn("user", (Text("hi"),)),),
        tools=(Tool(name="f", parameters=schema),),
        tool_choice=ToolChoice(mode="required"),
    )
    rules = rules_of(conversation, TOOL_FORMATS["hermes"])
    assert rules is not None
    head = f"<tool_call>\n{json.dumps({'name': 'f', 'arguments': {}})[:-2]}"
    forced = bytes(begun(grammars, rules).forced())
    assert forced.startswith(head.encode()) == is_whole
    assert bool(forced) == is_whole
