# SPDX-License-Identifier: Apache-2.0
"""Models with no wire of their own: JSON that calls a known tool, on a line or in a fence."""

from tokenlight.text.parsing.format import JsonCall, ToolFormat

JSON = ToolFormat(
    name="json",
    openers=("<tool_call>",),
    quiet_openers=("```json\n", "```tool_call\n", "```\n"),
    bare="line",
    closers=("</tool_call>", "```"),
    forms=(JsonCall(),),
    frame=('{"name": "NAME", "arguments": ', "}"),
)

NONE = ToolFormat(name="none", gap=0)
