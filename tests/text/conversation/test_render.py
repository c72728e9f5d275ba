# SPDX-License-Identifier: Apache-2.0
"""What conversations become under each family of templates."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.conversation.sources import SOURCES, template
from tests.text.conversation.test_mend import turns_of_any_kind
from tokenlight.base.errors import InvalidRequest
from tokenlight.text import ChatTemplate
from tokenlight.text.conversation import (
    Conversation,
    Reasoning,
    ReasoningWish,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    make_rendering,
    mend,
    read_traits,
    render_text,
)

BASH = Tool(
    name="bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}},
)
TEMPLATES = {name: (template(name), read_traits(template(name))) for name in SOURCES}


def says(role: str, text: str) -> Turn:
    return Turn(role, (Text(text),))


def calls(*arguments: str, say: str = "") -> Turn:
    made = tuple(ToolCall(f"call_{i}", "bash", a) for i, a in enumerate(arguments))
    return Turn("assistant", (*((Text(say),) if say else ()), *made))


def answers(*texts: str) -> list[Turn]:
    return [Turn("tool", (ToolResult(f"call_{i}", t, "bash"),)) for i, t in enumerate(texts)]


def render(name: str, *turns: Turn, **fields: object) -> str:
    return render_text(*TEMPLATES[name], mend(Conversation(turns=turns, **fields))[0])


SESSION = [
    says("system", "Be brief."),
    says("user", "What is here?"),
    calls('{"command": "ls -la"}', say="Looking."),
    *answers("a.txt"),
    says("assistant", "One file."),
    says("user", "Thanks."),
]


@pytest.mark.parametrize("name", SOURCES)
def test_every_template_renders_a_session_with_tools(name):
    text = render(name, *SESSION, tools=(BASH,))
    at = 0
    for word in ("Be brief.", "What is here?", "bash", "ls -la", "a.txt", "One file.", "Thanks."):
        found = text.find(word, at if word != "bash" else text.find("What is here?"))
        assert found >= 0, f"{word!r} is missing or out of order"
        at = found
    assert "Run a command." in text


@pytest.mark.parametrize("name", SOURCES)
def test_a_late_system_turn_is_said_and_changes_nothing_before_it(name):
    before = render(name, *SESSION[:-1], tools=(BASH,), opens_answer=False)
    late = [*SESSION[:-1], says("user", "Thanks."), says("system", "Now be long.")]
    after = render(name, *late, tools=(BASH,))
    assert after.startswith(before.rstrip())
    assert "Now be long." in after[len(before.rstrip()) :]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(
    "roles",
    ["a", "s", "uu", "aa", "us", "su", "usa", "asu", "ss", "suas", "uuaau", "t", "tu", "au", "sus"],
)
def test_any_order_of_roles_renders(name, roles):
    made = {
        "a": lambda i: says("assistant", f"word{i}"),
        "s": lambda i: says("system", f"word{i}"),
        "u": lambda i: says("user", f"word{i}"),
        "t": lambda i: Turn("tool", (ToolResult("x", f"word{i}"),)),
    }
    text = render(name, *(made[role](i) for i, role in enumerate(roles)))
    places = [text.find(f"word{i}") for i in range(len(roles))]
    assert -1 not in places
    assert places == sorted(places)


@settings(max_examples=60, deadline=None)
@given(turns_of_any_kind, st.sampled_from(sorted(SOURCES)), st.booleans())
def test_whatever_comes_renders(turns, name, has_tools):
    render(name, *turns, tools=(BASH,) if has_tools else ())


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"single"}))
def test_each_turn_of_a_session_keeps_the_text_of_those_before(name):
    for length in range(2, len(SESSION)):
        shorter = render(name, *SESSION[:length], tools=(BASH,), opens_answer=False)
        longer = render(name, *SESSION[: length + 1], tools=(BASH,), opens_answer=False)
        assert longer.startswith(shorter.rstrip()), SESSION[length]


def test_arguments_reach_the_template_as_an_object():
    made = make_rendering(
        TEMPLATES["tags"][1], Conversation(turns=(calls('{"command": "ls"}'),), tools=(BASH,))
    )
    assert made.messages[0]["tool_calls"][0]["function"]["arguments"] == {"command": "ls"}
    assert "<parameter=command>\nls\n</parameter>" in render(
        "tags", says("user", "x"), calls('{"command": "ls"}'), tools=(BASH,)
    )


@pytest.mark.parametrize("broken", ['{"command": "l', "[1]", "ls", '"ls"', "null", "{]" * 20_000])
@pytest.mark.parametrize("name", SOURCES)
def test_broken_arguments_render_and_are_seen(name, broken):
    text = render(name, says("user", "x"), calls(broken), tools=(BASH,))
    assert broken in text or json.dumps(broken)[1:-1] in text


def test_arguments_that_were_encoded_twice_are_an_object():
    twice = json.dumps(json.dumps({"command": "ls"}))
    text = render("tags", says("user", "x"), calls(twice), tools=(BASH,))
    assert "<parameter=command>\nls\n" in text


def test_a_template_without_tools_gets_them_in_words_and_calls_in_tags():
    text = render("chatml", *SESSION, tools=(BASH,))
    system = text[: text.index("<|im_end|>")]
    assert system.startswith("<|im_start|>system\nBe brief.\n\n")
    line = next(line for line in system.splitlines() if line.startswith("{"))
    assert json.loads(line)["parameters"] == BASH.parameters
    call = text[text.index("Looking.\n<tool_call>\n") :].splitlines()[2]
    assert json.loads(call) == {"name": "bash", "arguments": {"command": "ls -la"}}
    assert "<|im_start|>user\n<tool_response>\na.txt\n</tool_response><|im_end|>" in text


def test_ids_of_nine_characters_are_made_from_longer_ones_and_match():
    made = make_rendering(TEMPLATES["nines"][1], Conversation(turns=tuple(SESSION), tools=(BASH,)))
    id = made.messages[2]["tool_calls"][0]["id"]
    assert len(id) == 9
    assert id.isalnum()
    assert made.messages[3]["tool_call_id"] == id


def test_several_calls_become_a_turn_each_where_one_is_the_most():
    turns = [says("user", "x"), calls('{"command": "1"}', '{"command": "2"}'), *answers("A", "B")]
    text = render("single", *turns, tools=(BASH,))
    places = [text.find(w) for w in ('"command": "1"', "\nA\n", '"command": "2"', "\nB\n")]
    assert -1 not in places
    assert places == sorted(places)


def test_text_that_a_template_would_drop_beside_calls_is_a_turn_before_them():
    dropping = ChatTemplate(
        "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.role }}:"
        "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% else %}{{ m.content }}{% endif %}\n"
        "{% endfor %}"
    )
    traits = read_traits(dropping)
    assert not traits.takes_text_with_calls
    turns = (says("user", "x"), calls('{"command": "ls"}', say="Looking."), *answers("out"))
    text = render_text(dropping, traits, Conversation(turns=turns, tools=(BASH,)))
    assert text.index("assistant:Looking.assistant:[") < text.index("tool:out")


def test_reasoning_is_rendered_where_the_template_wants_it():
    turn = Turn("assistant", (Reasoning("hmm"), Text("yes")))
    assert "<think>\nhmm\n</think>\n\nyes" in render("tools", says("user", "x"), turn)
    assert "hmm" not in render("chatml", says("user", "x"), turn)


def test_thinking_is_switched_by_the_templates_own_variable():
    off = render("tools", says("user", "x"), reasoning=ReasoningWish(is_on=False))
    assert off.endswith("<think>\n\n</think>\n\n")
    assert not render("tools", says("user", "x")).endswith("</think>\n\n")
    own = {"enable_thinking": True}
    forced = render("tools", says("user", "x"), reasoning=ReasoningWish(is_on=False), variables=own)
    assert not forced.endswith("</think>\n\n")


@pytest.mark.parametrize("name", SOURCES)
def test_an_assistants_last_turn_can_be_continued(name):
    turns = [says("user", "x"), says("assistant", "The answer is ")]
    assert render(name, *turns, continues_last=True).endswith("The answer is")


def test_a_refusal_that_no_probe_foresaw_gets_the_plainest_form():
    moody = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'system' and 'shout' in m.content %}"
        "{{ raise_exception('no shouting') }}{% endif %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    )
    turns = (says("system", "shout"), says("user", "x"))
    assert render_text(moody, read_traits(moody), Conversation(turns=turns)) == "user:shout\n\nx\n"


def test_nothing_to_say_is_the_callers_error():
    with pytest.raises(InvalidRequest, match="at least 1 message"):
        render_text(*TEMPLATES["chatml"], Conversation(turns=()))
