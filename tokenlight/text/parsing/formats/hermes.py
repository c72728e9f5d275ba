# SPDX-License-Identifier: Apache-2.0
"""Hermes, Qwen2.5, Qwen3, SmolLM, Granite 4: a JSON object in <tool_call> tags."""

from tokenlight.text.parsing.format import JsonCall, ToolFormat
from tokenlight.text.parsing.formats.qwen3_coder import XML_CALL

HERMES = ToolFormat(
    name="hermes",
    openers=("<tool_call>",),
    closers=("</tool_call>",),
    forms=(JsonCall(), XML_CALL),
    frame=('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>"),
    signs=(("<tool_call>",),),
)
