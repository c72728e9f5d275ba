# SPDX-License-Identifier: Apache-2.0
"""A model's chat template: messages to the text that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from jinja2 import Template, TemplateError, TemplateSyntaxError

from tokenlight.base.errors import CheckpointCorrupt, InvalidRequest
from tokenlight.checkpoint import Checkpoint
from tokenlight.text.template.bounds import BUDGET, Budget, TemplateTooCostly
from tokenlight.text.template.sandbox import RaisedByTemplate, Sandbox
from tokenlight.text.tokenizer.tokenizer_config import named_tokens, read_tokenizer_config

# What Python raises where a template asks a value for what it does not have.
_RENDER_FAULTS = (
    TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip
_GGUF_KEYS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}


class ChatTemplate:
    """A compiled template, or two. Safe to use from several threads."""

    def __init__(
        self,
        source: str | None,
        special_tokens: Mapping[str, str] | None = None,
        *,
        tool_source: str | None = None,
    ) -> None:
        """Compile.

        Args:
            source: Jinja2 text; None for a model that has no template and cannot chat.
            special_tokens: "bos_token" and the like, as the template knows them.
            tool_source: what is rendered instead where there are tools; None: `source`.

        Raises:
            CheckpointCorrupt: a template cannot be compiled.
        """
        texts = [text for text in (source, tool_source) if text is not None]
        self.source = "\n".join(texts) if texts else None
        self._special_tokens = dict(special_tokens or {})
        self._two: tuple[ChatTemplate, ChatTemplate] | None = None
        if tool_source is not None:
            one, other = (ChatTemplate(text, special_tokens) for text in (source, tool_source))
            self._two = one, other
        self._template = None if source is None or self._two else _compiled(source)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Compile the checkpoint's own template.

        Raises:
            CheckpointCorrupt: it cannot be compiled.
        """
        source, tool_source = checkpoint.chat_template, checkpoint.tool_template
        special_tokens = _special_tokens(checkpoint, f"{source or ''}{tool_source or ''}")
        return cls(source, special_tokens, tool_source=tool_source)

    def alone(self, *, for_tools: bool) -> ChatTemplate:
        """The one template that is rendered where there are tools, or where there are none."""
        return self if self._two is None else self._two[for_tools]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Write messages as the model expects them.

        Args:
            messages: with `role` and `content`, as `conversation/render.py` makes them.
            tools: OpenAI's tool definitions; None for none.
            add_generation_prompt: whether to open the assistant's turn.
            **variables: what else the template reads, `enable_thinking` for one.

        Raises:
            InvalidRequest: the template refuses these messages or cannot render them.
        """
        template = self.alone(for_tools=bool(tools))._template
        if template is None:
            raise InvalidRequest(
                "this model has no chat template; send a text to /v1/completions, or serve with "
                "--chat-template",
                param="messages",
            )
        names = self._special_tokens | variables
        names |= {"messages": messages, "tools": tools, "documents": variables.get("documents")}
        names["add_generation_prompt"] = add_generation_prompt
        budget = BUDGET.set(Budget())
        try:
            return template.render(names)
        except _RENDER_FAULTS as fault:
            raise InvalidRequest(_explain(fault), param="messages") from fault
        finally:
            BUDGET.reset(budget)


def _compiled(source: str) -> Template:
    try:
        return Sandbox().from_string(source)
    except (TemplateSyntaxError, RecursionError) as fault:
        line = f", line {fault.lineno}" if isinstance(fault, TemplateSyntaxError) else ""
        raise CheckpointCorrupt(
            f"the chat template{line}: {fault}; mend it, or give another with --chat-template"
        ) from fault


def _explain(fault: Exception) -> str:
    if isinstance(fault, RaisedByTemplate):
        return f"the model's chat template refuses these messages: {fault}"
    if isinstance(fault, TemplateTooCostly):
        return f"the model's chat template was stopped: {fault}; send fewer or shorter messages"
    return (
        f"the model's chat template cannot render these messages: {type(fault).__name__}: {fault}; "
        f"check their roles, contents and tools"
    )


def _special_tokens(checkpoint: Checkpoint, source: str) -> dict[str, str]:
    """The texts of the special tokens, where the template names any."""
    tokenizer = checkpoint.tokenizer
    if tokenizer is None or "_token" not in source:
        return {}
    if tokenizer.gguf is None:
        return named_tokens(read_tokenizer_config(tokenizer.files))
    tokens = tokenizer.gguf.get_strings("tokenizer.ggml.tokens")
    found = {}
    for name, key in _GGUF_KEYS.items():
        token_id = tokenizer.gguf.find_int(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None and 0 <= token_id < len(tokens):
            found[name] = tokens[token_id]
    return found
