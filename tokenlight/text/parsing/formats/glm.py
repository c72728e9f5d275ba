# SPDX-License-Identifier: Apache-2.0
"""GLM-4.5 to 4.7: a name and pairs of key and value in <tool_call> tags."""

import re

from tokenlight.text.parsing.format import JsonCall, TaggedCall, ToolFormat

GLM45 = ToolFormat(
    name="glm45",
    openers=("<tool_call>",),
    closers=("</tool_call>",),
    forms=(
        JsonCall(),
        TaggedCall(
            parameter="<arg_key>",
            head=re.compile(r"\s*(?P<name>[^<>]+?)\s*</arg_key>\s*"),
            value_open="<arg_value>",
            value_close="</arg_value>",
            close="</tool_call>",
        ),
    ),
    frame=('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>"),
    signs=(("<arg_key>", "<tool_call>"),),
)
