# SPDX-License-Identifier: Apache-2.0
"""Granite 3: a control token, or a tag, and a JSON list; Granite 4 writes as Hermes does."""

from tokenlight.text.parsing.format import JsonCall, ToolFormat

GRANITE = ToolFormat(
    name="granite",
    openers=("<|tool_call|>", "<tool_call>"),
    closers=("</tool_call>",),
    forms=(JsonCall(),),
    frame=('<|tool_call|>[{"name": "NAME", "arguments": ', "}]"),
    signs=(("<|tool_call|>", "<|start_of_role|>"),),
)
