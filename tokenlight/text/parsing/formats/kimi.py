# SPDX-License-Identifier: Apache-2.0
"""Kimi K2: sections of calls in control tokens; a call's id names its tool."""

import re

from tokenlight.text.parsing.format import HeadedCall, ToolFormat

KIMI_K2 = ToolFormat(
    name="kimi_k2",
    openers=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    closers=("<|tool_calls_section_end|>",),
    forms=(
        HeadedCall(
            open="<|tool_call_begin|>",
            head=re.compile(
                r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.:/-]+?)(?::\d+)?)\s*"
                r"(?:<\|tool_call_argument_begin\|>\s*)?"
            ),
            tail=("<|tool_call_end|>",),
        ),
    ),
    gap=0,
    frame=(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0"
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    id_style="indexed",
    signs=(("<|tool_calls_section_begin|>",),),
)
