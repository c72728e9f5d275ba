# SPDX-License-Identifier: Apache-2.0
"""A Messages body as a conversation.

What becomes of content blocks:

    text                                  Text
    thinking, redacted_thinking           Reasoning: its text, or what we sealed into it
    tool_use                              ToolCall
    tool_result                           ToolResult; blocks inside as text, images as a remark
    document (text), search_result        Text
    image, document (file) from a user    refused: the model reads text only
    any other kind                        left out, and named in x-tokenlight-ignored
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.server.decoding.fields import schema_shape, string_of
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.sealed import unseal
from tokenlight.server.messages.client_tools import schema_of_client_tool
from tokenlight.server.messages.schema import (
    Block,
    InputMessage,
    PromptFields,
    ToolChoiceField,
)
from tokenlight.server.schemas.describe import shown
from tokenlight.text.conversation import (
    UNSEEN,
    Conversation,
    Part,
    Reasoning,
    ReasoningWish,
    Shape,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
    written_arguments,
)


def decode_conversation(body: PromptFields, notes: Notes) -> Conversation:
    """Read a body; what has no meaning here goes to `notes`.

    Raises:
        InvalidRequest: a block lacks what it must have.
        UnsupportedParameter: the user sends what this model cannot read.
    """
    turns = [_message(i, message, notes) for i, message in enumerate(body.messages)]
    system = _texts("system", body.system, notes)
    if system:
        turns.insert(0, Turn("system", tuple(map(Text, system))))
    tools = tuple(_tools(body.tools or (), notes))
    _note_left_out(body, notes)
    choice = body.tool_choice or ToolChoiceField(type="auto")
    return Conversation(
        turns=tuple(turns),
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        allows_parallel=not choice.disable_parallel_tool_use,
        reasoning=_reasoning(body),
        shape=_shape(body),
        continues_last=body.messages[-1].role == "assistant" and not turns[-1].calls,
    )


def _note_left_out(body: PromptFields, notes: Notes) -> None:
    if body.mcp_servers:
        notes.add("ignored", {"mcp_servers": len(body.mcp_servers)})
    if body.output_config and body.output_config.task_budget:
        notes.ignore("task_budget")
    if any((body.diagnostics or {}).values()):
        notes.ignore("diagnostics")
    for edit in (body.context_management and body.context_management.edits) or ():
        kind = edit.get("type") if isinstance(edit, dict) else None
        notes.ignore(kind, unnamed="context_management")


def _message(index: int, message: InputMessage, notes: Notes) -> Turn:
    where = f"messages[{index}].content"
    if message.content is None or isinstance(message.content, str):
        return Turn(message.role, (Text(message.content or ""),))
    parts: list[Part] = []
    for i, block in enumerate(message.content):
        if message.role == "assistant":
            parts += _assistant_block(f"{where}[{i}]", block, notes)
        else:
            parts += _user_block(f"{where}[{i}]", block, notes)
    return Turn(message.role, tuple(parts))


def _user_block(where: str, block: Block, notes: Notes) -> Iterable[Part]:
    match block.get("type"):
        case "tool_result":
            return [_tool_result(where, block, notes)]
        case "image":
            raise UnsupportedParameter(
                f"{where}.type", advice="leave the image out: this model reads text only"
            )
        case "document" if _document_text(block) is None:
            raise UnsupportedParameter(
                f"{where}.source", advice="send the document as text: this model reads text only"
            )
    return [Text(text) for text in _block_texts(where, block, notes)]


def _assistant_block(where: str, block: Block, notes: Notes) -> Iterable[Part]:
    match block.get("type"):
        case "tool_use":
            written = written_arguments(block.get("input"))
            return [ToolCall(string_of(block, "id"), string_of(block, "name"), written)]
        case "thinking":
            text = string_of(block, "thinking") or unseal(string_of(block, "signature"))
            return [Reasoning(text)] if text else []
        case "redacted_thinking":
            text = unseal(string_of(block, "data"))
            return [Reasoning(text)] if text else []
    return [Text(text) for text in _block_texts(where, block, notes)]


def _tool_result(where: str, block: Block, notes: Notes) -> ToolResult:
    text = "\n".join(_texts(f"{where}.content", block.get("content"), notes, is_result=True))
    if block.get("is_error") is True:
        # The protocol says it beside the text; templates have only the text.
        text = f"Error: {text}"
    return ToolResult(string_of(block, "tool_use_id"), text)


def _texts(where: str, content: object, notes: Notes, *, is_result: bool = False) -> list[str]:
    """A text, or blocks that hold text, as texts."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequest(f"{where!r} must be a string or a list of blocks", param=where)
    texts: list[str] = []
    for i, block in enumerate(content):
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict):
            texts += _block_texts(f"{where}[{i}]", block, notes, is_result=is_result)
        else:
            raise InvalidRequest(f"'{where}[{i}]' must be an object with a type", param=where)
    return texts


def _block_texts(
    where: str, block: Block, notes: Notes, *, is_result: bool = False
) -> Sequence[str]:
    kind = block.get("type")
    if kind in ("text", None):
        text = block.get("text")
        if not isinstance(text, str):
            raise InvalidRequest(f"'{where}.text' must be a string", param=f"{where}.text")
        return [text]
    if kind == "document":
        text = _document_text(block)
        about = [string_of(block, "title"), string_of(block, "context")]
        return [*filter(None, about), UNSEEN if text is None else text]
    if kind == "image" and is_result:
        # A session must not end because a tool took a picture.
        return [UNSEEN]
    if kind == "search_result":
        title = f"{string_of(block, 'title')} ({string_of(block, 'source')})"
        return [title, *_texts(f"{where}.content", block.get("content"), notes)]
    if kind == "tool_reference":
        return [f"The tool {string_of(block, 'tool_name')} can be called."]
    notes.ignore(kind, unnamed="block")
    return []


def _document_text(block: Block) -> str | None:
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    if source.get("type") == "content":
        return "\n".join(_texts("source.content", source.get("content"), Notes(), is_result=True))
    text = source.get("data") if source.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _tools(sent: Iterable[dict[str, Any]], notes: Notes) -> Iterable[Tool]:
    names: set[str] = set()
    for i, tool in enumerate(sent):
        kind = tool.get("type") or "custom"
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            schema = schema_of_client_tool(str(kind))
        if schema is None:
            if kind == "custom":
                raise InvalidRequest(
                    f"'tools[{i}].input_schema' must be an object: the JSON Schema of the "
                    f"tool's input",
                    param=f"tools[{i}].input_schema",
                )
            notes.ignore(kind, unnamed="tool")
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidRequest(
                f"'tools[{i}].name' must be a string that is not empty", param=f"tools[{i}].name"
            )
        if name in names:
            notes.ignore(f"duplicate_tool:{name}")
            continue
        names.add(name)
        yield Tool(
            name=name,
            description=string_of(tool, "description"),
            parameters=schema,
            is_strict=tool.get("strict") is True,
        )


def _tool_choice(choice: ToolChoiceField, tools: Sequence[Tool]) -> ToolChoice:
    if choice.type == "tool":
        if choice.name not in {tool.name for tool in tools}:
            raise InvalidRequest(
                f"'tool_choice.name' is {shown(choice.name)}, which is none of the tools; name one "
                f"of them",
                param="tool_choice.name",
            )
        return ToolChoice(mode="required", names=(choice.name or "",))
    if choice.type == "any" and tools:
        return ToolChoice(mode="required")
    return ToolChoice(mode="none" if choice.type == "none" else "auto")


_EFFORTS = {"xhigh": "high", "max": "high", "minimal": "low"}


def _reasoning(body: PromptFields) -> ReasoningWish:
    """Thinking is off unless asked for, as the protocol has it."""
    effort = body.output_config.effort if body.output_config else None
    if body.thinking is None or body.thinking.type == "disabled":
        return ReasoningWish(is_on=False)
    return ReasoningWish(
        is_on=True,
        effort=_EFFORTS.get(effort, effort) if effort else None,
        budget_tokens=body.thinking.budget_tokens,
    )


def _shape(body: PromptFields) -> Shape | None:
    asked, at = body.output_config.format if body.output_config else None, "output_config.format"
    if body.output_format is not None:
        if asked is not None:
            raise InvalidRequest(
                f"'output_format' and {at!r} both say what the answer must look like; send one",
                param="output_format",
            )
        asked, at = body.output_format, "output_format"
    if asked is None:
        return None
    if asked.get("type") != "json_schema":
        raise InvalidRequest(
            f"'{at}.type' must be json_schema, got {shown(asked.get('type'))}", param=f"{at}.type"
        )
    return schema_shape(asked.get("schema"), param=f"{at}.schema", field=f"{at}.schema")
