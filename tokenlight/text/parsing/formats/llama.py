# SPDX-License-Identifier: Apache-2.0
"""Llama 3 (a bare JSON object) and the Pythonic models: Llama 3.2 and 4, ToolACE, OLMo 3, LFM2."""

from tokenlight.text.parsing.format import JsonCall, LiteralCall, ToolFormat

LLAMA3_JSON = ToolFormat(
    name="llama3_json",
    openers=("<|python_tag|>",),
    bare="start",
    forms=(JsonCall(), LiteralCall(known_only=True)),
    gap=0,
    frame=('{"name": "NAME", "parameters": ', "}"),
    signs=(("<|start_header_id|>", '"parameters"'), ("<|python_tag|>",)),
)

PYTHONIC = ToolFormat(
    name="pythonic",
    openers=("<|python_start|>", "<function_calls>"),
    closers=("<|python_end|>", "</function_calls>"),
    bare="start",
    forms=(LiteralCall(), JsonCall()),
    gap=1,
    frame=('{"name": "NAME", "parameters": ', "}"),
    signs=(("<|python_start|>",), ("<function_calls>",)),
)

LFM2 = ToolFormat(
    name="lfm2",
    openers=("<|tool_call_start|>",),
    closers=("<|tool_call_end|>",),
    forms=(LiteralCall(), JsonCall()),
    frame=('<|tool_call_start|>[{"name": "NAME", "arguments": ', "}]<|tool_call_end|>"),
    signs=(("<|tool_call_start|>",), ("<|tool_list_start|>",)),
)
