# SPDX-License-Identifier: Apache-2.0
"""Area H at the door: structured output. Enforcement itself: `tests/text/grammar`."""

import json

import httpx
import pytest
from llguidance import LLMatcher

from tests.expectations.agents import SCHEMA, post, say
from tests.server.fake_engine import EOS, ByteTokenizer
from tests.server.scripted_engine import call, scripted
from tokenlight.text.grammar.matching import Grammars

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
FUNCTION = {"name": "bash", "parameters": SCHEMA}


def schema_body(path: str, schema: dict) -> dict:
    named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return {
        CHAT: {"messages": [say("go")], "response_format": named},
        MESSAGES: {
            "messages": [say("go")],
            "max_tokens": 100,
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
        },
        RESPONSES: {
            "input": "go",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
        },
    }[path]


def forced_body(path: str) -> dict:
    return {
        CHAT: {
            "messages": [say("go")],
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": "required",
        },
        MESSAGES: {
            "messages": [say("go")],
            "max_tokens": 100,
            "tools": [{"name": "bash", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
        },
        RESPONSES: {
            "input": "go",
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": {"type": "function", "name": "bash"},
        },
    }[path]


BAD = [{"type": "nope"}, {"$ref": "#/nowhere"}, {"type": "string", "pattern": "(?=x)"}]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("schema", BAD, ids=str)
def test_t_h1(path, schema):
    """A schema that cannot be enforced is the caller's error, named; the engine never sees it."""
    with scripted() as server:
        answer = post(server, path, schema_body(path, schema))
        assert not server.engine.seen
        assert post(server, CHAT, {"messages": [say("go")]}).status_code == 200
    assert answer.status_code == 400
    assert "cannot be enforced" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_t_h2(path):
    """A schema that refers to itself is enforced."""
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    with scripted("{}") as server:
        assert post(server, path, schema_body(path, tree)).status_code == 200
        rules = server.engine.seen[-1].sampling.grammar.rules
    assert not LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(rules))


def test_t_h3():
    """A hundred tools are checked once, and quickly."""
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": SCHEMA}}
        for i in range(100)
    ]
    body = {"messages": [say("go")], "tools": tools, "tool_choice": "required", "max_tokens": 1}
    with scripted(call("tool_7", "{}")) as server:
        post(server, CHAT, body)
        again = [post(server, CHAT, body).elapsed.total_seconds() for _ in range(5)]
    assert min(again) < 0.25  # rendering and tokenising 100 tools included, on a busy machine


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_t_c3(path):
    """A forced call is asked of the engine as rules, behind the reasoning if a prompt opens it."""
    with scripted(call("bash", '{"command": "ls"}')) as server:
        answer = post(server, path, forced_body(path))
        grammar = server.engine.seen[-1].sampling.grammar
    assert answer.status_code == 200
    assert grammar.after == ""
    assert "start: calls" in grammar.rules
    assert '"bash"' not in grammar.rules.replace('\\"bash\\"', "")


SHAPES = {
    "json": ({"json": SCHEMA}, '{"command": "ls"}', '{"x": 1}'),
    "json as text": ({"json": json.dumps(SCHEMA)}, '{"command": "ls"}', '{"x": 1}'),
    "json_object": ({"json_object": True}, '{"x": 1}', "[1]"),
    "regex": ({"regex": "[a-c]+"}, "abc", "abd"),
    "choice": ({"choice": ["yes", "no way"]}, "no way", "no"),
    "lark": ({"grammar": 'start: "a" b\nb: "c" | "d"\n'}, "ad", "a"),
    "gbnf": ({"grammar": 'root ::= "a" b\nb ::= "c" | "d"\n'}, "ad", "a"),
}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_fields_of_vllm(path, name):
    asked, good, bad = SHAPES[name]
    body = {"messages": [say("go")]} if path == CHAT else {"prompt": "go"}
    with scripted("x") as server:
        answer = post(server, path, {**body, "structured_outputs": asked})
        assert answer.status_code == 200, answer.text
        rules = server.engine.seen[-1].sampling.grammar.rules
    assert follows(rules, good)
    assert not follows(rules, bad)


def follows(rules: str, text: str) -> bool:
    matcher = Grammars(ByteTokenizer).compile(rules).result(20).begin(after="")
    for token_id in [*text.encode(), EOS]:
        if not matcher.allowed()[token_id]:
            return False
        matcher.say(token_id)
    return True


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_json": "not json"}, "guided_json"),
        ({"guided_grammar": "root ::= ::= x"}, "guided_grammar"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_read_is_refused_by_name(fields, param):
    with scripted() as server:
        answer: httpx.Response = post(server, CHAT, {"messages": [say("go")], **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
