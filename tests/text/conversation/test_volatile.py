# SPDX-License-Identifier: Apache-2.0
"""Lines that clients rewrite on each request."""

import pytest

from tokenlight.text.conversation import (
    Conversation,
    Text,
    ToolResult,
    Turn,
    without_volatile,
)

BILLING = "x-anthropic-billing-header: cc_version=2.1.332.e8f; cc_entrypoint=sdk-cli; cch=1a2b3;"
BUDGET = "<total_tokens>183211 tokens left</total_tokens>"


def cleaned(role: str, *texts: str):
    turn = Turn(role, tuple(map(Text, texts)))
    conversation, found = without_volatile(Conversation(turns=(turn,)))
    return conversation.turns[0].text, dict(found)


@pytest.mark.parametrize(
    ("line", "name"), [(BILLING, "anthropic-billing-header"), (BUDGET, "total-tokens")]
)
@pytest.mark.parametrize("role", ["system", "user"])
def test_a_volatile_line_goes_and_is_named(line, name, role):
    assert cleaned(role, line, "You are an agent.") == ("You are an agent.", {name: 1})
    assert cleaned(role, f"{line}\nYou are an agent.") == ("You are an agent.", {name: 1})
    assert cleaned(role, f"Before.\n{line}\nAfter.") == ("Before.\nAfter.", {name: 1})
    assert cleaned(role, line) == ("", {name: 1})


@pytest.mark.parametrize(
    "text",
    [
        "What does x-anthropic-billing-header: cch=1 mean?",
        "see <total_tokens>1</total_tokens> there",
        "<total_tokens>\nmany\nlines</total_tokens>",
    ],
)
def test_text_that_speaks_of_such_a_line_stays(text):
    assert cleaned("user", text) == (text, {})


def test_an_assistants_words_and_a_tools_result_are_never_touched():
    turns = (Turn("assistant", (Text(BILLING),)), Turn("tool", (ToolResult("a", BUDGET),)))
    conversation = Conversation(turns=turns)
    assert without_volatile(conversation) == (conversation, {})


def test_two_versions_of_the_line_leave_one_conversation():
    one, two = (cleaned("system", BILLING.replace("1a2b3", c), "Stable.") for c in ("aaaaa", "bb"))
    assert one == two
