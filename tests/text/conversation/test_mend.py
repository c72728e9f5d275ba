# SPDX-License-Identifier: Apache-2.0
"""The table of malformed histories, row by row; and that later turns never change earlier ones."""

from hypothesis import given
from hypothesis import strategies as st

from tokenlight.text.conversation import (
    Conversation,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    mend,
)

HI = Turn("user", (Text("hi"),))


def mended(*turns: Turn):
    conversation, notes = mend(Conversation(turns=turns))
    return list(conversation.turns), dict(notes)


def calling(*calls: ToolCall) -> Turn:
    return Turn("assistant", calls)


def result(id: str, text: str = "ok", name: str = "") -> Turn:
    return Turn("tool", (ToolResult(id, text, name),))


def test_a_sound_history_is_untouched_but_for_the_names_of_results():
    turns = [HI, calling(ToolCall("a", "ls", "{}")), result("a", name="ls")]
    assert mended(*turns) == (turns, {})


def test_a_result_gets_the_name_of_its_tool():
    turns, _ = mended(HI, calling(ToolCall("a", "ls", "{}")), result("a"))
    assert turns[2].results[0].name == "ls"


def test_an_orphan_result_is_quoted_by_the_user():
    turns, notes = mended(HI, result("nobody", "42"))
    assert notes == {"orphan_result": 1}
    assert turns[1].role == "user"
    assert "42" in turns[1].text


def test_a_second_result_for_one_call_is_an_orphan():
    turns, notes = mended(calling(ToolCall("a", "ls", "{}")), result("a", "1"), result("a", "2"))
    assert notes == {"orphan_result": 1}
    assert [turn.role for turn in turns] == ["assistant", "tool", "user"]


def test_a_result_before_its_call_is_an_orphan_and_the_call_stays_open():
    turns, notes = mended(result("a"), calling(ToolCall("a", "ls", "{}")))
    assert notes == {"orphan_result": 1}
    assert [turn.role for turn in turns] == ["user", "assistant"]


def test_duplicate_ids_are_renamed_and_their_results_find_them_in_order():
    turns, notes = mended(
        calling(ToolCall("a", "one", "{}"), ToolCall("a", "two", "{}")),
        result("a", "first"),
        result("a", "second"),
        calling(ToolCall("a", "three", "{}")),
        result("a", "third"),
    )
    assert notes == {"duplicate_call_id": 2}
    calls = [call.id for turn in turns for call in turn.calls]
    assert calls == ["a", "a#2", "a#3"]
    results = [(r.call_id, r.name, r.text) for turn in turns for r in turn.results]
    assert results == [("a", "one", "first"), ("a#2", "two", "second"), ("a#3", "three", "third")]


def test_missing_ids_are_given_and_found_by_the_tools_name():
    turns, notes = mended(
        calling(ToolCall("", "one", "{}"), ToolCall("", "two", "{}")),
        result("", "second", name="two"),
        result("", "first"),
    )
    assert notes == {"missing_call_id": 4}
    assert [r.name for turn in turns for r in turn.results] == ["two", "one"]
    assert len({call.id for call in turns[0].calls}) == 2


def test_a_call_without_a_name_and_a_turn_without_parts():
    turns, notes = mended(Turn("user", ()), calling(ToolCall("a", "", "{}")))
    assert notes == {"empty_turn": 1, "nameless_call": 1}
    assert turns == [Turn("user", (Text(""),)), calling(ToolCall("a", "unknown", "{}"))]


def test_broken_arguments_are_kept_as_they_came():
    broken = ToolCall("a", "ls", '{"path": "/tm')
    turns, notes = mended(calling(broken))
    assert notes == {"broken_arguments": 1}
    assert turns[0].calls == (broken,)


def test_results_and_text_of_one_users_turn_keep_their_order():
    mixed = Turn("user", (ToolResult("a", "out"), Text("and"), Text("now?")))
    turns, notes = mended(calling(ToolCall("a", "ls", "{}")), mixed)
    assert notes == {}
    assert [turn.role for turn in turns] == ["assistant", "tool", "user"]
    assert turns[2].text == "and\nnow?"


ids = st.sampled_from(["", "a", "b", "c"])
texts = st.text(max_size=3)
parts_of = {
    "system": st.builds(Text, texts),
    "user": st.builds(Text, texts) | st.builds(ToolResult, ids, texts),
    "assistant": st.builds(Text, texts)
    | st.builds(Reasoning, texts)
    | st.builds(ToolCall, ids, st.sampled_from(["", "ls"]), st.sampled_from(["", "{}", "{", "[]"])),
    "tool": st.builds(ToolResult, ids, texts),
}
turns_of_any_kind = st.lists(
    st.sampled_from(sorted(parts_of)).flatmap(
        lambda role: st.builds(Turn, st.just(role), st.lists(parts_of[role], max_size=3).map(tuple))
    ),
    min_size=1,
    max_size=8,
)


@given(turns_of_any_kind)
def test_whatever_comes_is_sound_afterwards(turns):
    mended_turns, _ = mended(*turns)
    open_ids: set[str] = set()
    seen: set[str] = set()
    for turn in mended_turns:
        assert turn.parts
        for call in turn.calls:
            assert call.id
            assert call.name
            assert call.id not in seen
            seen.add(call.id)
            open_ids.add(call.id)
        for found in turn.results:
            assert turn.role == "tool"
            assert len(turn.parts) == 1
            assert found.call_id in open_ids
            open_ids.remove(found.call_id)


@given(turns_of_any_kind)
def test_more_turns_never_change_those_before(turns):
    whole, _ = mended(*turns)
    for length in range(len(turns)):
        shorter, _ = mended(*turns[:length])
        assert whole[: len(shorter)] == shorter


@given(turns_of_any_kind)
def test_no_word_is_lost(turns):
    whole, _ = mended(*turns)
    after = "\0".join(
        part.arguments if isinstance(part, ToolCall) else part.text
        for turn in whole
        for part in turn.parts
    )
    for turn in turns:
        for part in turn.parts:
            assert (part.arguments if isinstance(part, ToolCall) else part.text) in after


def test_renamed_ids_do_not_meet_ids_that_look_renamed():
    turns, _ = mended(
        calling(ToolCall("a#2", "x", "{}"), ToolCall("a", "x", "{}"), ToolCall("a", "x", "{}"))
    )
    assert len({call.id for call in turns[0].calls}) == 3
