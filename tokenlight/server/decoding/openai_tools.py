# SPDX-License-Identifier: Apache-2.0
"""Tools of OpenAI's two protocols, as the model sees them and as clients want calls back.

function     offered as it is
namespace    each of its functions as NAMESPACE__NAME; a call names both again
custom       a function with one text, `input`; its call is a custom_tool_call
any other    runs on OpenAI's servers, which we are not: left out, named in x-tokenlight-ignored
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenlight.base.errors import InvalidRequest
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.schemas.describe import shown
from tokenlight.text.conversation import CUSTOM_INPUT, Tool, ToolChoice, spelled_object

_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class KnownTool:
    """What a client calls a tool that the model knows under `tool.name`."""

    tool: Tool
    name: str
    namespace: str = ""
    is_custom: bool = False


def custom_input(arguments: str) -> str:
    """The text that a custom tool gets; all of the arguments where they are not as agreed."""
    found = (spelled_object(arguments) or {}).get(CUSTOM_INPUT)
    return found if isinstance(found, str) else arguments


def visible_name(name: str, namespace: str) -> str:
    """As the model sees it."""
    return f"{namespace}{_SEPARATOR}{name}" if namespace else name


def decode_tools(sent: Sequence[dict[str, Any]], notes: Notes) -> dict[str, KnownTool]:
    """The tools by the name that the model sees; of two with one name, the first.

    Raises:
        InvalidRequest: a function lacks a name, or its parameters are no schema.
    """
    known: dict[str, KnownTool] = {}
    for i, tool in enumerate(sent):
        for found in _tools(f"tools[{i}]", tool, notes):
            if known.setdefault(found.tool.name, found) is not found:
                notes.ignore(f"duplicate_tool:{found.tool.name}")
    return known


def _tools(where: str, sent: dict[str, Any], notes: Notes) -> Iterator[KnownTool]:
    match sent.get("type"):
        case "function":
            yield _function(where, sent, "")
        case "custom":
            yield _custom(where, sent)
        case "namespace":
            namespace = sent.get("name")
            inner = sent.get("tools")
            if not isinstance(namespace, str) or not isinstance(inner, list):
                raise InvalidRequest(
                    f"'{where}' is a namespace: it must have a name and a list of tools",
                    param=where,
                )
            for i, tool in enumerate(inner):
                if isinstance(tool, dict) and tool.get("type") == "function":
                    yield _function(f"{where}.tools[{i}]", tool, namespace)
                else:
                    kind = tool.get("type") if isinstance(tool, dict) else None
                    notes.ignore(kind, unnamed="tool")
        case kind:
            notes.ignore(kind, unnamed="tool")


def _function(where: str, sent: dict[str, Any], namespace: str) -> KnownTool:
    # Chat completions' form, one level deeper, is sent here as well.
    inner = sent.get("function")
    function = inner if isinstance(inner, dict) else sent
    name = _name(where, function)
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise InvalidRequest(
            f"'{where}.parameters' must be an object: a JSON Schema", param=f"{where}.parameters"
        )
    tool = Tool(
        name=visible_name(name, namespace),
        description=_description(function),
        parameters=parameters,
        is_strict=function.get("strict") is True,
    )
    return KnownTool(tool, name, namespace)


def _custom(where: str, sent: dict[str, Any]) -> KnownTool:
    inner = sent.get("custom")
    custom = inner if isinstance(inner, dict) else sent
    name = _name(where, custom)
    description = _description(custom)
    form = custom.get("format")
    if isinstance(form, dict) and isinstance(form.get("definition"), str):
        description += (
            f"\n\nThe input must follow this {form.get('syntax')} grammar:\n{form['definition']}"
        )
    parameters = {
        "type": "object",
        "properties": {CUSTOM_INPUT: {"type": "string"}},
        "required": [CUSTOM_INPUT],
        "additionalProperties": False,
    }
    tool = Tool(name=name, description=description.strip(), parameters=parameters)
    return KnownTool(tool, name, is_custom=True)


def _name(where: str, sent: dict[str, Any]) -> str:
    name = sent.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest(
            f"'{where}.name' must be a string that is not empty", param=f"{where}.name"
        )
    return name


def _description(sent: dict[str, Any]) -> str:
    description = sent.get("description")
    return description if isinstance(description, str) else ""


_MODES = ("auto", "none", "required")
# What other protocols write; left to OpenAI's own tools they would force nothing.
_NOT_OPENAIS = frozenset({"any", "tool", ""})


def decode_tool_choice(sent: str | dict[str, Any] | None, known: Iterable[KnownTool]) -> ToolChoice:
    """How the model may call.

    Raises:
        InvalidRequest: it is of no known form, or names a tool that the request does not have.
    """
    tools = list(known)
    if isinstance(sent, dict) and sent.get("type") in _MODES:
        sent = sent["type"]  # as Cursor writes it
    if sent in (None, "auto", {}):
        return ToolChoice()
    if sent == "none":
        return ToolChoice(mode="none")
    if sent == "required":
        return ToolChoice(mode="required") if tools else ToolChoice()
    kind = sent.get("type") if isinstance(sent, dict) else None
    if not isinstance(sent, dict) or not isinstance(kind, str) or kind in _NOT_OPENAIS:
        raise InvalidRequest(
            f"'tool_choice' must be 'auto', 'none', 'required', or an object whose type is "
            f"'function', 'custom' or 'allowed_tools', got {shown(sent)}",
            param="tool_choice",
        )
    match kind:
        case "function" | "custom":
            return ToolChoice(mode="required", names=tuple(_find(_inner(sent), tools)))
        case "allowed_tools":
            body = sent.get("allowed_tools")
            allowed = body if isinstance(body, dict) else sent
            listed = allowed.get("tools")
            names = [
                name
                for tool in (listed if isinstance(listed, list) else ())
                if isinstance(tool, dict) and tool.get("type") in ("function", "custom")
                for name in _find(_inner(tool), tools)
            ]
            if not names:
                return ToolChoice(mode="none")
            mode = allowed.get("mode")
            if mode not in (None, "auto", "required"):
                raise InvalidRequest(
                    f"the mode of 'tool_choice' must be 'auto' or 'required', got {shown(mode)}",
                    param="tool_choice",
                )
            return ToolChoice(mode=mode or "auto", names=tuple(names))
    return ToolChoice()  # one of OpenAI's own tools: there is none here to choose


def _inner(tool: dict[str, Any]) -> dict[str, Any]:
    inner = tool.get("function") or tool.get("custom")
    return inner if isinstance(inner, dict) else tool


def _find(named: dict[str, Any], tools: Sequence[KnownTool]) -> Iterator[str]:
    name, namespace = named.get("name"), named.get("namespace")
    found = [
        t.tool.name for t in tools if t.name == name and (namespace in (None, "", t.namespace))
    ]
    if not found:
        raise InvalidRequest(
            f"'tool_choice' names {shown(name)}, which is none of the tools; name one of them",
            param="tool_choice",
        )
    yield from found[:1]
