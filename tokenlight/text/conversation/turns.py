# SPDX-License-Identifier: Apache-2.0
"""A conversation as we hold it, whichever protocol it came in by: turns, made of parts.

    Conversation
    |- turns: Turn(role, parts)           in the order that the client sent
    |  '- Text | Reasoning | ToolCall | ToolResult
    |- tools: Tool                        what the model may call
    |- tool_choice, allows_parallel       how it may call
    |- reasoning                          how much it shall think
    '- shape                              what its answer must look like

Protocols decode into this and encode from what the model answers; nothing behind them knows which
protocol it was.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """What the assistant thought before it spoke or called, without the model's markers."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="call"):
    id: str
    name: str
    arguments: str
    """JSON as it was sent; not necessarily an object, not necessarily JSON."""


class ToolResult(msgspec.Struct, frozen=True, tag="result"):
    call_id: str
    text: str
    name: str = ""
    """Of the tool, where the client says it."""


Part: TypeAlias = Text | Reasoning | ToolCall | ToolResult


class Turn(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]
    """An assistant's: Text, Reasoning and ToolCall. A tool's: one ToolResult. Others: Text."""

    @property
    def text(self) -> str:
        """Its text parts, a line each."""
        return "\n".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def reasoning(self) -> str:
        return "\n".join([part.text for part in self.parts if isinstance(part, Reasoning)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As the model sees it."""
    description: str = ""
    parameters: dict[str, Any]
    """JSON Schema of the arguments."""
    is_strict: bool = False
    """Whether arguments must follow the schema to the letter."""


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    """The tools that may be called; empty for all."""


UNSEEN = "[an image or file was here: this model reads text only]"
"""What stands in a history for what the model cannot read: a session must go on."""

UNSEEN_KINDS = ("image", "image_url", "file", "audio", "screenshot")
"""How the kinds of the parts end that hold such a thing, in OpenAI's protocols."""

_NO_EFFORT = ("none", "minimal")
_EFFORTS = {"xhigh": "high", "max": "high"}


class ReasoningWish(msgspec.Struct, frozen=True, kw_only=True):
    """None leaves the matter to the model's template."""

    is_on: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None

    @classmethod
    def of_effort(cls, effort: str | None) -> ReasoningWish:
        """As OpenAI's protocols ask: by one word, which may also turn it off."""
        if effort is None:
            return cls()
        if effort in _NO_EFFORT:
            return cls(is_on=False)
        return cls(is_on=True, effort=_EFFORTS.get(effort, effort))


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer's text must be. One of the four is set."""

    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    """One of these texts."""
    lark: str | None = None
    """A grammar of the client's own, beginning at `start`."""
    param: str = "response_format"
    """The request's field that asks for it, for messages."""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    allows_parallel: bool = True
    """Whether one answer may hold several calls."""
    reasoning: ReasoningWish = ReasoningWish()
    shape: Shape | None = None
    continues_last: bool = False
    """Whether the answer continues the last turn, an assistant's, instead of opening a new one."""
    opens_answer: bool = True
    """Whether the assistant's turn is opened after the last; only False for who asks for it."""
    variables: dict[str, Any] = {}
    """What else the model's template reads."""
