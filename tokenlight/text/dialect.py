# SPDX-License-Identifier: Apache-2.0
"""How one model is spoken to and understood: its template, the template's traits, wire formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tokenlight.text.conversation import Conversation, Template, Traits, read_traits, render_text
from tokenlight.text.grammar.rules import rules_of
from tokenlight.text.parsing import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    Parser,
    ReasoningFormat,
    ToolFormat,
    get_reasoning_format,
    get_tool_format,
)
from tokenlight.wire import Grammar


@dataclass(frozen=True, slots=True)
class Dialect:
    """Made once, at start."""

    template: Template
    traits: Traits
    tools: ToolFormat
    reasoning: ReasoningFormat

    @classmethod
    def of(
        cls,
        template: Template,
        *,
        tool_call_parser: str | None = None,
        reasoning_parser: str | None = None,
    ) -> Self:
        """Find out how to speak with a model.

        Args:
            template: its chat template.
            tool_call_parser: the name of a tool format; None to tell it from the template.
            reasoning_parser: the same for reasoning.

        Raises:
            ConfigError: a format of that name is not known.
        """
        traits = read_traits(template)
        source = template.source or ""
        return cls(
            template,
            traits,
            get_tool_format(tool_call_parser) if tool_call_parser else _tool_format(source, traits),
            get_reasoning_format(reasoning_parser)
            if reasoning_parser
            else _reasoning_format(source),
        )

    def render(self, conversation: Conversation) -> str:
        return render_text(self.template, self.traits, conversation)

    def rules(self, conversation: Conversation) -> str | None:
        """What the answer must look like; None where it is free.

        Raises:
            UnsupportedParameter: calls cannot be forced in this model's format.
        """
        return rules_of(conversation, self.tools)

    def grammar(self, rules: str, prompt: str) -> Grammar:
        """The rules, from where they hold: behind the reasoning, where the prompt opens one."""
        channels = self.tools.channels
        if channels is not None:
            return Grammar(rules, after=f"{channels.channel}final{channels.message}")
        is_open = self.reasoning.is_open_in(prompt)
        return Grammar(rules, after=self.reasoning.closers[0] if is_open else "")

    def parser(self, conversation: Conversation, prompt: str) -> Parser:
        """A parser for the answer to `conversation`, which was rendered as `prompt`."""
        calls = conversation.tool_choice.mode != "none"
        return Parser(
            self.tools,
            self.reasoning,
            functions={t.name: t.parameters for t in conversation.tools} if calls else None,
            starts_inside=self.reasoning.is_open_in(prompt),
        )


def _tool_format(source: str, traits: Traits) -> ToolFormat:
    if traits.has_tools:
        for found in TOOL_FORMATS.values():
            if any(all(sign in source for sign in signs) for signs in found.signs):
                return found
    return TOOL_FORMATS["json"]


def _reasoning_format(source: str) -> ReasoningFormat:
    for found in REASONING_FORMATS.values():
        if found.openers and all(
            marker in source for marker in (found.openers[0], found.closers[0])
        ):
            return found
    return REASONING_FORMATS["none"]
