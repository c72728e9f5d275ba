# SPDX-License-Identifier: Apache-2.0
"""MiniMax: M1 (and Apriel) list JSON objects in tags, M2 tags invocations and their parameters."""

import re

from tokenlight.text.parsing.format import JsonCall, TaggedCall, ToolFormat

MINIMAX_M2 = ToolFormat(
    name="minimax_m2",
    openers=("<minimax:tool_call>",),
    closers=("</minimax:tool_call>",),
    forms=(
        TaggedCall(
            open='<invoke name="',
            after_name='">',
            parameter='<parameter name="',
            head=re.compile(r'(?P<name>[^"]+)"\s*'),
            value_open=">",
            value_close="</parameter>",
            close="</invoke>",
        ),
        JsonCall(),
    ),
    strays=("[e~[", "]~b]"),
    frame=('<minimax:tool_call>\n{"name": "NAME", "arguments": ', "}\n</minimax:tool_call>"),
    signs=(("<minimax:tool_call>",),),
)

MINIMAX_M1 = ToolFormat(
    name="minimax_m1",
    openers=("<tool_calls>",),
    closers=("</tool_calls>",),
    forms=(JsonCall(),),
    frame=('<tool_calls>\n{"name": "NAME", "arguments": ', "}\n</tool_calls>"),
    signs=(("<tool_calls>",),),
)
