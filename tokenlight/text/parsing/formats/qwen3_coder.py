# SPDX-License-Identifier: Apache-2.0
"""Qwen3-Coder, Qwen3.5, Seed-OSS: parameters in tags, values as bare text on lines of their own."""

import re
from dataclasses import replace

from tokenlight.text.parsing.format import JsonCall, TaggedCall, ToolFormat

XML_CALL = TaggedCall(
    open="<function=",
    after_name=">",
    parameter="<parameter=",
    head=re.compile(r"(?P<name>[^<>\n]+)"),
    value_open=">",
    value_close="</parameter>",
    close="</function>",
    padding=1,
)

QWEN3_CODER = ToolFormat(
    name="qwen3_coder",
    openers=("<tool_call>", "<function="),
    closers=("</tool_call>",),
    forms=(XML_CALL, JsonCall()),
    gap=2,
    frame=('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>"),
    signs=(("<tool_call>", "<function="),),
)

SEED_OSS = replace(
    QWEN3_CODER,
    name="seed_oss",
    openers=("<seed:tool_call>",),
    closers=("</seed:tool_call>",),
    frame=('<seed:tool_call>\n{"name": "NAME", "arguments": ', "}\n</seed:tool_call>"),
    signs=(("<seed:tool_call>",),),
)
