# SPDX-License-Identifier: Apache-2.0
"""Tools for models whose template knows none: described to the model in words, called in tags.

The form is the one that most instruction-tuned models have met, and the generic format of
`text/parsing` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenlight.text.conversation.arguments import spelled_object
from tokenlight.text.conversation.turns import Tool, ToolCall, ToolResult


def describe_tools(tools: Sequence[Tool]) -> str:
    """What the system turn says about the tools."""
    listed = "\n".join(_dump(tool_definition(tool)["function"]) for tool in tools)
    return (
        f"You can call tools. Each line here is one, with the JSON Schema of its arguments:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        f"To call a tool, write its name and arguments as one JSON object, in this form:\n"
        f'<tool_call>\n{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}\n</tool_call>\n'
        f"Its result comes back between <tool_response> and </tool_response>. "
        f"When no tool is needed, answer in plain text."
    )


def tool_definition(tool: Tool) -> dict[str, Any]:
    """A tool as templates that know tools want it."""
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def write_call(call: ToolCall) -> str:
    spelled = spelled_object(call.arguments)
    arguments = _dump(call.arguments) if spelled is None else _dump(spelled)
    return f'<tool_call>\n{{"name": {_dump(call.name)}, "arguments": {arguments}}}\n</tool_call>'


def write_result(result: ToolResult) -> str:
    return f"<tool_response>\n{result.text}\n</tool_response>"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
