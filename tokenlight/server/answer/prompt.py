# SPDX-License-Identifier: Apache-2.0
"""A conversation's prompt: cleaned, mended, rendered, tokenised; the same for every protocol."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from tokenlight import wire
from tokenlight.server.admission import INLINE_CHARS
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.services import Services
from tokenlight.text.conversation import Conversation, mend, without_volatile
from tokenlight.text.grammar.check import check_rules


@dataclass(frozen=True, slots=True)
class Prompt:
    conversation: Conversation
    """As it was rendered."""
    text: str
    token_ids: list[int]
    grammar: wire.Grammar | None
    """What the answer must look like."""
    thinking: wire.ThinkingBudget | None = None
    """How long it may reason."""


async def make_prompt(svc: Services, conversation: Conversation, notes: Notes) -> Prompt:
    """The prompt that the model gets; what was done on the way goes to `notes`.

    Raises:
        InvalidRequest: the conversation is empty, or the template refuses it in every form.
    """
    if svc.config.volatile_lines == "neutralize":
        conversation, found = without_volatile(conversation)
        notes.add("neutralized", found)
    rules = await _checked_rules(svc, conversation)
    conversation, mended = mend(conversation)
    notes.add("mended", mended)
    if not _is_long(conversation):
        return _render(svc, conversation, rules)
    # The other streams must not wait for it.
    return await asyncio.to_thread(_render, svc, conversation, rules)


async def _checked_rules(svc: Services, conversation: Conversation) -> str | None:
    rules = svc.dialect.rules(conversation)
    if rules is not None:
        shape = conversation.shape
        is_forced = conversation.tool_choice.mode == "required"
        param = "tools" if is_forced or shape is None else shape.param
        await asyncio.to_thread(check_rules, rules, param=param)
    return rules


def _render(svc: Services, conversation: Conversation, rules: str | None) -> Prompt:
    text = svc.dialect.render(conversation)
    # The template writes the begin-of-text token itself where the model wants one.
    token_ids = svc.tokenizer.encode(text, parse_special=True, add_bos=False)
    grammar = None if rules is None else svc.dialect.grammar(rules, text)
    thinking = svc.dialect.thinking(conversation, text)
    return Prompt(conversation, text, token_ids, grammar, thinking)


def _is_long(conversation: Conversation) -> bool:
    """Tools are measured where the turns are short alone: their schemas are written out for it."""
    said = sum(len(turn.text) + len(turn.reasoning) for turn in conversation.turns)
    said += sum(len(result.text) for turn in conversation.turns for result in turn.results)
    said += sum(len(call.arguments) for turn in conversation.turns for call in turn.calls)
    for tool in conversation.tools:
        if said > INLINE_CHARS:
            break
        said += 256 + len(tool.description) + len(msgspec.json.encode(tool.parameters))
    return said > INLINE_CHARS
