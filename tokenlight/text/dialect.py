# SPDX-License-Identifier: Apache-2.0
"""How one model is spoken to and understood: its template, the template's traits, wire formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tokenlight.base.log import event, get_log
from tokenlight.text.conversation import Conversation, Template, Traits, read_traits, render_text
from tokenlight.text.grammar.rules import rules_of
from tokenlight.text.parsing import (
    TOOL_FORMATS,
    Parser,
    ReasoningFormat,
    ToolFormat,
    get_reasoning_format,
    get_tool_format,
)
from tokenlight.text.parsing.detect import pick
from tokenlight.text.tokenizer import Tokenizer
from tokenlight.wire import Grammar, ThinkingBudget

_log = get_log("text")


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """The tokens around reasoning, of models that have them."""

    opener: int
    closer: int
    ending: tuple[int, ...]
    """What a model is made to say in order to end it."""

    @classmethod
    def of(cls, reasoning: ReasoningFormat, tokenizer: Tokenizer) -> Self | None:
        if not reasoning.openers or not reasoning.closers:
            return None
        opener, closer, padding = (
            tokenizer.encode(text, parse_special=True, add_bos=False)
            for text in (reasoning.openers[0], reasoning.closers[0], "\n" * reasoning.padding)
        )
        if len(opener) != 1 or len(closer) != 1:
            return None
        return cls(opener[0], closer[0], (*padding, *closer))


@dataclass(frozen=True, slots=True)
class Dialect:
    """Made once, at start."""

    template: Template
    traits: Traits
    """Of the template that is rendered where there are tools."""
    plain_traits: Traits
    """Of the one where there are none; most models have one template for both."""
    tools: ToolFormat
    reasoning: ReasoningFormat
    special_ids: Mapping[str, int]
    """The tokenizer's special tokens by their texts."""
    marks: ThinkingMarks | None = None
    """None where reasoning cannot be bounded: none is known, or its marks are no tokens."""

    @classmethod
    def of(
        cls,
        template: Template,
        tokenizer: Tokenizer,
        *,
        tool_call_parser: str | None = None,
        reasoning_parser: str | None = None,
    ) -> Self:
        """Find out how to speak with a model.

        Args:
            template: its chat template.
            tokenizer: its tokenizer.
            tool_call_parser: the name of a tool format; None to tell it from the template.
            reasoning_parser: the same for reasoning.

        Raises:
            ConfigError: a format of that name is not known.
        """
        plain_traits = read_traits(template.alone(for_tools=False))
        traits = read_traits(template.alone(for_tools=True))
        if not traits.has_tools:  # it is given none, so the plain one is rendered
            traits = plain_traits
        picked = pick(template.source or "", template.render)
        # Where the template knows no tools they are spoken of in words of our own.
        tools = picked.tools if traits.has_tools else TOOL_FORMATS["json"]
        if tool_call_parser:
            tools = get_tool_format(tool_call_parser)
        elif traits.has_tools and not picked.round_trip.is_same:
            _log.warning(event("tool_format_unsure", format=tools.name))
        reasoning = picked.reasoning
        if reasoning_parser:
            reasoning = get_reasoning_format(reasoning_parser)
        _log.info(event("dialect", tools=tools.name, reasoning=reasoning.name))
        marks = ThinkingMarks.of(reasoning, tokenizer)
        special_ids = _special_ids(tokenizer)
        return cls(template, traits, plain_traits, tools, reasoning, special_ids, marks)

    def render(self, conversation: Conversation) -> str:
        traits = self.traits if conversation.tools else self.plain_traits
        return render_text(self.template, traits, conversation)

    def rules(self, conversation: Conversation) -> str | None:
        """What the answer must look like; None where it is free.

        Raises:
            UnsupportedParameter: calls cannot be forced in this model's format.
        """
        return rules_of(
            conversation,
            self.tools,
            self.reasoning,
            self.special_ids,
            knows_calls=self.traits.has_tools,
        )

    def grammar(self, rules: str, prompt: str) -> Grammar:
        """The rules, from where they hold: behind the reasoning, where the prompt opens one."""
        channels = self.tools.channels
        if channels is not None:
            return Grammar(rules, after=f"{channels.channel}final{channels.message}")
        is_open = self.reasoning.is_open_in(prompt)
        return Grammar(rules, after=self.reasoning.closers[0] if is_open else "")

    def thinking(self, conversation: Conversation, prompt: str) -> ThinkingBudget | None:
        """How long the answer to `conversation`, rendered as `prompt`, may reason."""
        wish, marks = conversation.reasoning, self.marks
        if wish.budget_tokens is None or wish.is_on is False or marks is None:
            return None
        return ThinkingBudget(
            num_tokens=wish.budget_tokens,
            opener=None if self.reasoning.is_open_in(prompt) else marks.opener,
            closer=marks.closer,
            ending=marks.ending,
        )

    def parser(self, conversation: Conversation, prompt: str) -> Parser:
        """A parser for the answer to `conversation`, which was rendered as `prompt`."""
        mode = conversation.tool_choice.mode
        functions = {tool.name: tool.parameters for tool in conversation.tools}
        return Parser(
            self.tools,
            self.reasoning,
            functions=functions if mode != "none" else None,
            starts_inside=self.reasoning.is_open_in(prompt),
            is_forced=mode == "required" and bool(functions),
        )


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {
        tokenizer.token_bytes(token_id).decode("utf-8", "replace"): token_id
        for token_id in range(tokenizer.vocab_size)
        if tokenizer.is_special(token_id)
    }
