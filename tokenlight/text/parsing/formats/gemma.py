# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 (no wire of its own: fenced code, a list of calls, or JSON), FunctionGemma, Gemma 4."""

from tokenlight.text.parsing.format import JsonCall, LiteralCall, ToolFormat

GEMMA3 = ToolFormat(
    name="gemma3",
    quiet_openers=("```tool_code\n", "```json\n", "```tool_call\n"),
    bare="start",
    closers=("```",),
    forms=(JsonCall(), LiteralCall(known_only=True)),
    frame=('{"name": "NAME", "parameters": ', "}"),
    signs=(("<start_of_turn>",),),
)

FUNCTION_GEMMA = ToolFormat(
    name="functiongemma",
    openers=("<start_function_call>",),
    closers=("<end_function_call>",),
    forms=(
        LiteralCall(open="call:", brackets="{}", quotes=("<escape>",), is_python=False),
        JsonCall(),
    ),
    strays=("<start_function_response>",),
    frame=('<start_function_call>{"name": "NAME", "arguments": ', "}<end_function_call>"),
    signs=(("<start_function_call>",),),
)

GEMMA4 = ToolFormat(
    name="gemma4",
    openers=("<|tool_call>",),
    closers=("<tool_call|>",),
    forms=(
        LiteralCall(open="call:", brackets="{}", quotes=('<|"|>',), is_python=False),
        JsonCall(),
    ),
    strays=(
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|turn>",
        "<turn|>",
    ),
    frame=('<|tool_call>{"name": "NAME", "arguments": ', "}<tool_call|>"),
    signs=(("<|tool_call>",),),
)
