# SPDX-License-Identifier: Apache-2.0
"""Mistral: [TOOL_CALLS] and a JSON list, or a name, [ARGS] and the arguments, once per call."""

import re

from tokenlight.text.parsing.format import HeadedCall, JsonCall, ToolFormat

MISTRAL = ToolFormat(
    name="mistral",
    openers=("[TOOL_CALLS]",),
    forms=(
        JsonCall(),
        HeadedCall(
            head=re.compile(
                r"(?P<name>[\w.:/-]+)\s*(?:\[CALL_ID\](?P<id>\w+)\s*)?(?:\[ARGS\]\s*)?"
            ),
        ),
    ),
    gap=0,
    frame=("[TOOL_CALLS]NAME[ARGS]", ""),
    id_style="nine",
    signs=(("[TOOL_CALLS]",),),
)
