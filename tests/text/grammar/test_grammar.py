# SPDX-License-Identifier: Apache-2.0
"""Rules for answers: what they allow, what they refuse, and where they begin to hold."""

import json
from collections import Counter
from random import Random

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.server.fake_engine import EOS, ByteTokenizer
from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.text.conversation import Conversation, Shape, Text, Tool, ToolChoice, Turn
from tokenlight.text.grammar.check import check_rules
from tokenlight.text.grammar.matching import Grammars
from tokenlight.text.grammar.rules import rules_of
from tokenlight.text.parsing import TOOL_FORMATS, parse
from tokenlight.text.parsing.formats import REASONING_FORMATS

HI = (Turn("user", (Text("hi"),)),)
SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "times": {"type": "integer"}},
    "required": ["command"],
    "additionalProperties": False,
}
TOOLS = (Tool(name="bash", parameters=SCHEMA), Tool(name="look", parameters={}))
REQUIRED = ToolChoice(mode="required")


@pytest.fixture(scope="module")
def grammars():
    return Grammars(ByteTokenizer)


def matcher(grammars, rules: str, after: str = ""):
    return grammars.compile(rules).result(20).begin(after=after)


def accepts(grammars, rules: str, text: str, *, after: str = "") -> bool:
    """Whether the text, and then the end, can be said token by token."""
    following = matcher(grammars, rules, after)
    for token_id in [*text.encode(), EOS]:
        if not following.allowed()[token_id]:
            return False
        following.say(token_id)
    return True


def rules(format: str = "hermes", **fields) -> str:
    found = rules_of(Conversation(turns=HI, **fields), TOOL_FORMATS[format])
    assert found is not None
    check_rules(found, param="x")
    return found


def test_an_answer_is_free_unless_something_is_asked():
    conversation = Conversation(turns=HI, tools=TOOLS)
    assert rules_of(conversation, TOOL_FORMATS["hermes"]) is None


CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
LOOK = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (CALL, True),
        (LOOK, True),
        (f"{CALL}\n{LOOK}", True),
        ("", False),
        ("Sure.", False),
        (CALL.replace("ls", 'a \\"b\\" ü'), True),
        (CALL.replace('"command": "ls"', '"command": 5'), False),
        (CALL.replace('"command": "ls"', '"command": "ls", "times": 2'), True),
        (CALL.replace('"command": "ls"', '"command": "ls", "other": 2'), False),
        (CALL.replace('"command": "ls"', ""), False),
        (CALL.replace("bash", "rm"), False),
        (CALL[:-1], False),
        (f"{CALL} and more", False),
    ],
)
def test_a_forced_call_is_a_call_of_a_tool_with_arguments_of_its_schema(grammars, text, is_allowed):
    made = rules(tools=TOOLS, tool_choice=REQUIRED)
    assert accepts(grammars, made, text) == is_allowed


def test_one_named_tool_and_one_call(grammars):
    choice = ToolChoice(mode="required", names=("look",))
    made = rules(tools=TOOLS, tool_choice=choice, allows_parallel=False)
    assert accepts(grammars, made, LOOK)
    assert not accepts(grammars, made, CALL)
    assert not accepts(grammars, made, f"{LOOK}\n{LOOK}")


def test_a_named_tool_is_called_once(grammars):
    made = rules(tools=TOOLS, tool_choice=ToolChoice(mode="required", names=("look",)))
    assert accepts(grammars, made, LOOK)
    assert not accepts(grammars, made, f"{LOOK}\n{LOOK}")


def test_a_model_that_was_never_taught_to_call_is_made_to_call_once(grammars):
    conversation = Conversation(turns=HI, tools=TOOLS, tool_choice=REQUIRED)
    made = rules_of(conversation, TOOL_FORMATS["hermes"], knows_calls=False)
    assert accepts(grammars, made, CALL)
    assert not accepts(grammars, made, f"{CALL}\n{LOOK}")


FRAMED = sorted(name for name, found in TOOL_FORMATS.items() if found.frame is not None)


@pytest.mark.parametrize("name", FRAMED)
def test_what_is_forced_in_a_format_is_read_back_by_its_parser(grammars, name):
    made = rules(name, tools=TOOLS, tool_choice=REQUIRED, allows_parallel=False)
    before, after = TOOL_FORMATS[name].frame
    arguments = '{"command": "echo \\"hi\\"", "times": 3}'
    text = before.replace("NAME", "bash") + arguments + after.replace("NAME", "bash")
    assert accepts(grammars, made, text)
    parsed = parse(
        text,
        TOOL_FORMATS[name],
        REASONING_FORMATS["none"],
        functions={tool.name: tool.parameters for tool in TOOLS},
    )
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == [
        ("bash", json.loads(arguments))
    ]


STRICT = (Tool(name="bash", parameters=SCHEMA, is_strict=True), TOOLS[1])


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("", True),
        ("Just text, with < and <tool and {}.", True),
        (CALL, True),
        (f"Looking.\n{CALL}\nand {LOOK} done", True),
        (CALL.replace('"ls"', "5"), False),
        (CALL.replace("bash", "rm"), False),
        ("<tool_call>nonsense", False),
        (CALL[:-5], False),
    ],
)
def test_strict_tools_bind_calls_and_leave_text_free(grammars, text, is_allowed):
    assert accepts(grammars, rules(tools=STRICT), text) == is_allowed


def test_allowed_tools_are_all_that_can_be_called(grammars):
    made = rules(tools=TOOLS, tool_choice=ToolChoice(names=("look",)))
    assert accepts(grammars, made, f"Sure. {LOOK}")
    assert not accepts(grammars, made, CALL)
    assert accepts(grammars, made, "No call at all.")


def test_calls_that_are_not_json_behind_an_opener_are_not_bound():
    conversation = Conversation(turns=HI, tools=STRICT)
    for name in ("qwen3_coder", "pythonic", "none", "harmony"):
        assert rules_of(conversation, TOOL_FORMATS[name]) is None


def test_reasoning_marked_by_special_tokens_leaves_the_answer_free():
    conversation = Conversation(turns=HI, tools=STRICT)
    made = rules_of(
        conversation, TOOL_FORMATS["hermes"], REASONING_FORMATS["qwen3"], {"<think>": 5}
    )
    assert made is None


def test_a_marker_that_is_a_special_token_is_said_as_one():
    conversation = Conversation(turns=HI, tools=TOOLS[:1], tool_choice=REQUIRED)
    special_ids = {"<tool_call>": 7, "</tool_call>": 8, "": 9}
    made = rules_of(conversation, TOOL_FORMATS["hermes"], special_ids=special_ids)
    line = next(line for line in made.splitlines() if line.startswith("call_0: "))
    assert line.startswith('call_0: <[7]> "\\n{\\"name\\": \\"bash\\"')
    assert line.endswith("<[8]>")
    check_rules(made, param="tools")


def test_a_format_that_cannot_be_forced_says_so():
    unframed = next(name for name, found in TOOL_FORMATS.items() if found.frame is None)
    conversation = Conversation(turns=HI, tools=TOOLS, tool_choice=REQUIRED)
    with pytest.raises(UnsupportedParameter, match="tool_choice"):
        rules_of(conversation, TOOL_FORMATS[unframed])


def test_a_shape_is_json_as_templates_write_it(grammars):
    made = rules(shape=Shape(json_schema=SCHEMA))
    assert accepts(grammars, made, '{"command": "ls", "times": 1}')
    assert not accepts(grammars, made, '{"command":"ls"}')
    assert not accepts(grammars, made, '{  "command": "ls"}')
    assert not accepts(grammars, made, '{"times": 1}')


@pytest.mark.parametrize(
    ("value", "is_allowed"),
    [
        ("1" * 20, True),
        ("1" * 21, False),
        ("-" + "7" * 20, True),
        ("0." + "3" * 20, True),
        ("0." + "3" * 21, False),
        ("12345678901234567890.5", True),
        ("1e99", True),
        ("-1.5E-07", True),
        ("1e100", False),
        ("1e+100", False),
        ('"' + "1" * 40 + '"', True),
        ('"\\"' + "1" * 40 + '"', True),
        ('"\\\\", ' + "1" * 21, False),
    ],
)
def test_numbers_end_and_strings_of_digits_need_not(grammars, value, is_allowed):
    made = rules(shape=Shape(json_schema={"type": "array"}))
    assert accepts(grammars, made, f"[{value}]") == is_allowed


def test_a_number_that_its_schema_makes_long_may_be_long(grammars):
    made = rules(shape=Shape(json_schema={"enum": [10**30, 2]}))
    assert accepts(grammars, made, str(10**30))


def test_what_the_rules_force_is_known_at_once(grammars):
    following = matcher(grammars, rules(tools=TOOLS[:1], tool_choice=REQUIRED))
    start = b'<tool_call>\n{"name": "bash", "arguments": {"command": "'
    assert bytes(following.forced()) == start
    for token_id in start:
        assert np.flatnonzero(following.allowed()).tolist() == [token_id]
        following.say(token_id)
    assert following.forced() == []
    following.keep(3)
    assert bytes(following.forced()) == start[3:]


def test_a_shape_beside_tools_leaves_both_ways_open(grammars):
    made = rules(shape=Shape(json_schema=SCHEMA), tools=TOOLS)
    assert accepts(grammars, made, '{"command": "ls"}')
    assert accepts(grammars, made, CALL)
    assert not accepts(grammars, made, "text")


def test_a_regular_expression(grammars):
    made = rules(shape=Shape(regex=r"[a-c]{2}/\/\d"))
    assert accepts(grammars, made, "ab//7")
    assert not accepts(grammars, made, "ab/x")


def test_rules_hold_once_the_reasoning_has_ended(grammars):
    made = rules(tools=TOOLS, tool_choice=REQUIRED)
    assert accepts(grammars, made, f"I could <tool_call> now.\n</think>{CALL}", after="</think>")
    assert not accepts(grammars, made, f"hm</think>yes{CALL}", after="</think>")
    assert not accepts(grammars, made, "hm", after="</think>"), "the answer may not end before"


def test_when_all_is_said_only_the_end_is_left(grammars):
    following = matcher(grammars, rules(shape=Shape(regex="ab")))
    for token_id in b"ab":
        following.say(token_id)
    assert np.flatnonzero(following.allowed()).tolist() == [EOS]
    following.say(EOS)
    assert np.flatnonzero(following.allowed()).tolist() == [EOS]


def test_tokens_that_were_never_committed_are_taken_back(grammars):
    following = matcher(grammars, rules(tools=TOOLS, tool_choice=REQUIRED), "</t>")
    text = f"hm</t>{CALL}".encode()
    seen = []
    for token_id in text:
        seen.append(following.allowed().tolist())
        following.say(token_id)
    for num_tokens in (len(text) - 1, 20, 6, 3, 0):
        following.keep(num_tokens)
        assert following.num_tokens == num_tokens
        assert following.allowed().tolist() == seen[num_tokens]


def test_two_answers_of_the_same_rules_do_not_meet(grammars):
    made = rules(shape=Shape(regex="ab|cd"))
    one, other = matcher(grammars, made), matcher(grammars, made)
    one.say(ord("a"))
    assert np.flatnonzero(one.allowed()).tolist() == [ord("b")]
    assert np.flatnonzero(other.allowed()).tolist() == [ord("a"), ord("c")]


def test_the_same_rules_are_compiled_once(grammars):
    made = rules(shape=Shape(regex="xy"))
    assert grammars.compile(made) is grammars.compile(made)


def test_rules_that_fail_at_the_engine_leave_only_the_end(grammars):
    following = matcher(grammars, "start: nothing_of_this_name\n")
    assert np.flatnonzero(following.allowed()).tolist() == [EOS]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (Shape(json_schema={"type": "nope"}), "Invalid type: nope"),
        (Shape(json_schema={"$ref": "#/nowhere"}), "does not exist"),
        (Shape(json_schema={"$ref": "#"}), "no text follows it"),
        (Shape(regex="("), "regex"),
        (Shape(json_schema={"type": "string", "pattern": "(?=x)"}), "look-around"),
        (Shape(json_schema={"enum": ["x" * (1 << 20)]}), "longer than"),
    ],
)
def test_what_cannot_be_enforced_is_the_callers_error(shape, why):
    made = rules_of(Conversation(turns=HI, shape=shape), TOOL_FORMATS["hermes"])
    with pytest.raises(InvalidRequest, match=why) as refused:
        check_rules(made, param="response_format")
    assert refused.value.param == "response_format"


def test_a_tools_schema_that_cannot_be_enforced_whole_is_enforced_as_far_as_it_goes(grammars):
    odd = {"type": "object", "properties": {"a": {"type": "string", "format": "unheard-of"}}}
    made = rules(tools=(Tool(name="t", parameters=odd),), tool_choice=REQUIRED)
    assert accepts(
        grammars, made, '<tool_call>\n{"name": "t", "arguments": {"a": "x"}}\n</tool_call>'
    )


leaves = st.sampled_from(
    [{"type": t} for t in ("string", "integer", "number", "boolean", "null", "nope")]
    + [
        {"enum": [1, "a", None]},
        {"const": {"x": 1}},
        {"$ref": "#"},
        {"$ref": "#/x"},
        {},
        {"type": []},
    ]
    + [{"type": "string", "pattern": p} for p in ("^a+$", "(", "\\d{3}", "(?=x)")]
    + [{"type": "string", "format": f} for f in ("date", "email", "odd")]
    + [{"type": "integer", "minimum": 5, "maximum": m} for m in (1, 9)]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda names, values, more, required: {
            "type": "object",
            "properties": dict(zip(names, values, strict=False)),
            "additionalProperties": more,
            "required": names[:required],
        },
        st.lists(st.text(max_size=4), max_size=3, unique=True),
        st.lists(inner, max_size=3),
        st.booleans() | inner,
        st.integers(0, 3),
    )
    | st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner)
    | st.builds(lambda kind, parts: {kind: parts}, st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip


def is_valid(schema: object, value: object) -> bool:
    try:
        return jsonschema_rs.is_valid(schema, value)
    except (jsonschema_rs.ValidationError, ValueError):
        return True  # the schema itself is none: what it means is nobody's to say


def check_any(grammars, schema: object) -> bool:
    """Whether it is enforced; then whatever is said under it follows it."""
    made = rules_of(Conversation(turns=HI, shape=Shape(json_schema=schema)), TOOL_FORMATS["hermes"])
    try:
        check_rules(made, param="response_format")
    except InvalidRequest:
        return False
    following, said, random = matcher(grammars, made), bytearray(), Random(0)
    while len(said) < 200:
        choices = np.flatnonzero(following.allowed())
        token_id = EOS if EOS in choices else int(random.choice(choices))
        if token_id == EOS:
            written = bytes(said).decode()
            assert is_valid(schema, json.loads(written)), (schema, written)
            return True
        said.append(token_id)
        following.say(token_id)
    return True


@settings(max_examples=300, deadline=None)
@given(schemas)
def test_any_schema_is_enforced_or_refused_and_never_worse(grammars, schema):
    check_any(grammars, schema)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_t_h2_ten_thousand_schemas(grammars):
    """Nothing that is called a schema harms anybody; what is enforced is followed."""
    counts = Counter()

    @settings(
        max_examples=10_000,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schemas)
    def check(schema):
        counts[check_any(grammars, schema)] += 1

    check()
    assert counts.total() >= 10_000
    assert counts[True] > 1000
    assert counts[False] > 1000
