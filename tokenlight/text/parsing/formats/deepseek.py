# SPDX-License-Identifier: Apache-2.0
"""DeepSeek: V3 and R1 (arguments in a code fence), V3.1 (bare), V3.2 and V4 (tags)."""

import re
from dataclasses import replace

from tokenlight.text.parsing.format import HeadedCall, JsonCall, TaggedCall, ToolFormat

_CALL_BEGIN = "<｜tool▁call▁begin｜>"  # noqa: RUF001
_CALL_END = "<｜tool▁call▁end｜>"  # noqa: RUF001
_SEP = "<｜tool▁sep｜>"  # noqa: RUF001
_CALLS_BEGIN = "<｜tool▁calls▁begin｜>"  # noqa: RUF001
_CALLS_END = "<｜tool▁calls▁end｜>"  # noqa: RUF001
_DSML = "｜DSML｜"  # noqa: RUF001

DEEPSEEK_V3 = ToolFormat(
    name="deepseek_v3",
    openers=(_CALLS_BEGIN, _CALL_BEGIN),
    closers=(_CALLS_END,),
    forms=(
        HeadedCall(
            open=_CALL_BEGIN,
            head=re.compile(rf"(?:\w*{_SEP})?\s*(?P<name>[\w.:/-]+)\s*(?:```(?:json)?\s*)?"),
            tail=("```", _CALL_END),
        ),
    ),
    frame=(
        f"{_CALLS_BEGIN}{_CALL_BEGIN}function{_SEP}NAME\n```json\n",
        f"\n```{_CALL_END}{_CALLS_END}",
    ),
    signs=((_CALLS_BEGIN, "```json"),),
)

DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    forms=(
        HeadedCall(
            open=_CALL_BEGIN,
            head=re.compile(rf"\s*(?P<name>[\w.:/-]+)\s*(?:{_SEP})?\s*"),
            tail=(_CALL_END,),
        ),
        *DEEPSEEK_V3.forms,
    ),
    frame=(f"{_CALLS_BEGIN}{_CALL_BEGIN}NAME{_SEP}", f"{_CALL_END}{_CALLS_END}"),
    signs=((_CALLS_BEGIN,),),
)

DEEPSEEK_V32 = ToolFormat(
    name="deepseek_v32",
    openers=(f"<{_DSML}function_calls>", f"<{_DSML}tool_calls>"),
    closers=(f"</{_DSML}function_calls>", f"</{_DSML}tool_calls>"),
    forms=(
        TaggedCall(
            open=f'<{_DSML}invoke name="',
            after_name='">',
            parameter=f'<{_DSML}parameter name="',
            head=re.compile(r'(?P<name>[^"]+)"(?:\s+string="(?P<string>true|false)")?'),
            value_open=">",
            value_close=f"</{_DSML}parameter>",
            close=f"</{_DSML}invoke>",
        ),
        JsonCall(),
    ),
    gap=2,
    frame=(
        f'<{_DSML}function_calls>\n{{"name": "NAME", "arguments": ',
        f"}}\n</{_DSML}function_calls>",
    ),
    signs=((_DSML,),),
)
