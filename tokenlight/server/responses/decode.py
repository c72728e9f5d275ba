# SPDX-License-Identifier: Apache-2.0
"""A Responses body as a conversation.

What becomes of input items:

    message (with or without `type`)      a turn; `developer` is `system`
    reasoning                             Reasoning: its text, or what we sealed into it
    function_call, custom_tool_call       ToolCall
    X_call with a call_id                 ToolCall of a tool X with the item's own fields
    X_output with a call_id               ToolResult; those of functions, custom tools and the local
                                          shell without one, too
    item_reference                        the stored item that it names, put in its place before
    any other kind                        left out, and named in x-tokenlight-ignored

What the assistant said, thought and called in a row is one turn. An image or file from the user is
refused: the model reads text only; in a tool's output it is a remark, so that a session goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenlight.base.errors import InvalidRequest, UnsupportedParameter
from tokenlight.server.decoding.fields import schema_shape, string_of
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import (
    KnownTool,
    decode_tool_choice,
    visible_name,
)
from tokenlight.server.decoding.sealed import unseal
from tokenlight.server.responses.schema import Item, ResponsesRequest
from tokenlight.server.schemas.describe import shown
from tokenlight.text.conversation import (
    CUSTOM_INPUT,
    UNSEEN,
    UNSEEN_KINDS,
    Conversation,
    Part,
    Reasoning,
    ReasoningWish,
    Role,
    Shape,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    json_text,
    written_arguments,
)

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_OWN_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_OWN_FIELDS = frozenset(("type", "id", "call_id", "status", "caller"))
_TEXT_PARTS = (
    "input_text",
    "output_text",
    "text",
    "refusal",
    "summary_text",
    "reasoning_text",
)
# An output that is one part; any other object is a tool's own.
_PICTURES = ("input_image", "input_file", "input_audio", "computer_screenshot")
_LOGPROBS = "message.output_text.logprobs"


def check_supported(body: ResponsesRequest) -> None:
    """Raises UnsupportedParameter where a field that is read asks for what is not implemented.

    Fields that are not read at all are in `schemas/unsupported.py`.
    """
    if _LOGPROBS in (body.include or ()):
        raise UnsupportedParameter("include", advice=f"leave {_LOGPROBS!r} out")
    if body.reasoning and body.reasoning.mode not in (None, "standard"):
        raise UnsupportedParameter("reasoning.mode", advice="leave it out: all reason alike")


def note_left_out(body: ResponsesRequest, notes: Notes) -> None:
    """Name what changes nothing of an answer to a conversation that fits."""
    if body.truncation == "auto":
        notes.ignore("truncation")
    for edit in body.context_management or ():
        notes.ignore(edit.get("type"), unnamed="context_management")


def decode_conversation(
    body: ResponsesRequest,
    earlier: Iterable[Turn],
    said: Sequence[Turn],
    known: dict[str, KnownTool],
) -> Conversation:
    """Put a request together.

    Args:
        body: the request.
        earlier: what stored responses before it hold.
        said: `decode_input` of this request.
        known: its tools.

    Raises:
        InvalidRequest: `tool_choice` or `text.format` cannot be used.
    """
    head = [Turn("system", (Text(body.instructions),))] if body.instructions else []
    return Conversation(
        turns=(*head, *earlier, *said),
        tools=tuple(found.tool for found in known.values()),
        tool_choice=decode_tool_choice(body.tool_choice, known.values()),
        allows_parallel=body.parallel_tool_calls is not False,
        reasoning=ReasoningWish.of_effort(body.reasoning.effort if body.reasoning else None),
        shape=_shape(body.text.format if body.text else None),
    )


def decode_input(sent: str | list[Item] | None, notes: Notes) -> list[Turn]:
    """The turns of this request's own input.

    Raises:
        InvalidRequest: an item lacks what it must have.
        UnsupportedParameter: the user sends what this model cannot read.
    """
    if sent is None:
        return []
    if isinstance(sent, str):
        return [Turn("user", (Text(sent),))]
    turns: list[Turn] = []
    for i, item in enumerate(sent):
        role, parts = _item(f"input[{i}]", item, notes)
        if role == "assistant" and turns and turns[-1].role == "assistant":
            turns[-1] = Turn("assistant", (*turns[-1].parts, *parts))
        elif parts or role != "assistant":
            turns.append(Turn(role, parts))
    return [turn for turn in turns if turn.parts]


def _item(where: str, item: Item, notes: Notes) -> tuple[Role, tuple[Part, ...]]:
    kind = item.get("type")
    if kind == "message" or (kind is None and "role" in item):
        return _message(where, item, notes)
    if kind == "reasoning":
        text = _reasoning_text(item)
        return "assistant", (Reasoning(text),) if text else ()
    if kind == "function_call":
        return "assistant", (_function_call(item),)
    if kind == "custom_tool_call":
        arguments = json_text({CUSTOM_INPUT: string_of(item, "input")})
        return "assistant", (ToolCall(_call_id(item), string_of(item, "name"), arguments),)
    if kind in _OWN_OUTPUTS:
        return "tool", (_result(where, item, notes),)
    if isinstance(kind, str) and isinstance(item.get("call_id"), str):
        if kind.endswith("_output"):
            return "tool", (_result(where, item, notes),)
        if kind.endswith("_call"):
            rest = {key: value for key, value in item.items() if key not in _OWN_FIELDS}
            name = kind.removesuffix("_call")
            return "assistant", (ToolCall(_call_id(item), name, json_text(rest)),)
    notes.ignore(kind, unnamed="item")
    return "assistant", ()


def _message(where: str, item: Item, notes: Notes) -> tuple[Role, tuple[Part, ...]]:
    sent = item.get("role")
    role = _ROLES.get(sent) if isinstance(sent, str) else None
    if role is None:
        raise InvalidRequest(
            f"'{where}.role' must be one of {', '.join(_ROLES)}, got {shown(sent)}",
            param=f"{where}.role",
        )
    texts = _texts(f"{where}.content", item.get("content"), notes, is_output=role == "assistant")
    return role, tuple(map(Text, texts or [""]))


def _function_call(item: Item) -> ToolCall:
    written = written_arguments(item.get("arguments"))
    name = visible_name(string_of(item, "name"), string_of(item, "namespace"))
    return ToolCall(_call_id(item), name, written)


def _result(where: str, item: Item, notes: Notes) -> ToolResult:
    output = item.get("output")
    if isinstance(output, dict) and string_of(output, "type") in _PICTURES:
        output = [output]
    if output is None or isinstance(output, (str, list)):
        text = "\n".join(_texts(f"{where}.output", output, notes, is_output=True))
    else:
        text = json_text(output)
    if item.get("status") == "failed":
        # The protocol says it beside the text; templates have only the text.
        text = f"Error: {text}"
    # A local shell's output has the call's id as its own.
    is_shell = item.get("type") == "local_shell_call_output"
    call_id = _call_id(item) if is_shell else string_of(item, "call_id")
    name = visible_name(string_of(item, "name"), string_of(item, "namespace"))
    return ToolResult(call_id, text, name)


def _texts(where: str, content: object, notes: Notes, *, is_output: bool) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequest(f"{where!r} must be a string or a list of parts", param=where)
    return [
        text
        for i, part in enumerate(content)
        for text in _part_texts(f"{where}[{i}]", part, notes, is_output=is_output)
    ]


def _part_texts(where: str, part: object, notes: Notes, *, is_output: bool) -> list[str]:
    if isinstance(part, str):
        return [part]
    if not isinstance(part, dict):
        raise InvalidRequest(f"{where!r} must be an object with a type", param=where)
    kind = part.get("type")
    if kind in _TEXT_PARTS or (kind is None and isinstance(part.get("text"), str)):
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise InvalidRequest(f"'{where}.text' must be a string", param=f"{where}.text")
        return [text]
    if kind is None and is_output:
        return [json_text(part)]  # of a shell: what it wrote, and how it ended
    if isinstance(kind, str) and kind.endswith(UNSEEN_KINDS):
        if is_output:
            return [UNSEEN]
        raise UnsupportedParameter(
            f"{where}.type", advice=f"leave {kind!r} out: this model reads text only"
        )
    notes.ignore(kind, unnamed="part")
    return []


def _reasoning_text(item: Item) -> str:
    """What was thought: in words, as we sealed it, or at least its summary."""
    for key in ("content", "summary"):
        parts = item.get(key)
        texts = [
            part["text"]
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if texts:
            return "\n".join(texts)
        if key == "content":
            sealed = unseal(string_of(item, "encrypted_content"))
            if sealed is not None:
                return sealed
    return ""


def _shape(asked: dict[str, Any] | None) -> Shape | None:
    if asked is None:
        return None
    match asked.get("type"):
        case "text":
            return None
        case "json_object":
            return Shape(json_schema={"type": "object"}, param="text.format")
        case "json_schema":
            at = "text.format.schema"
            return schema_shape(asked.get("schema"), param=at, field=at)
        case kind:
            raise InvalidRequest(
                f"'text.format.type' must be text, json_object or json_schema, got {shown(kind)}",
                param="text.format.type",
            )


def _call_id(item: Item) -> str:
    return string_of(item, "call_id") or string_of(item, "id")
