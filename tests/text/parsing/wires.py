# SPDX-License-Identifier: Apache-2.0
"""Each tool format's wire form, written by hand: what a model of that family would emit.

Written from the families' published formats, apart from the parser: the two can disagree.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]
BAR = "\uff5c"

FUNCTIONS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "scale": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "exact": {"type": "boolean"},
            "limit": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
        },
    },
    "list_files": {"type": "object", "properties": {}},
    "write_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    },
}


@dataclass(frozen=True)
class Wire:
    """How one family writes.

    `is_raw`: arguments stand in the wire as JSON text; `thinking` writes reasoning before the rest;
    `keeps_content`: content may stand before calls.
    """

    write: Callable[[str, Calls], str]
    is_raw: bool = True
    reasoning: str = "none"
    thinking: Callable[[str], str] | None = None
    keeps_content: bool = True
    is_parallel: bool = True


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: Any) -> str:
    return value if isinstance(value, str) else text_of(value)


def think(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


def hermes(content: str, calls: Calls) -> str:
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {text_of(args)}}}\n</tool_call>'
        for name, args in calls
    ]
    return "\n".join(filter(None, [content, *blocks]))


def json_list(opener: str, closer: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        listed = text_of([{"name": name, "arguments": args} for name, args in calls])
        return content + (f"{opener}{listed}{closer}" if calls else "")

    return write


def cohere(content: str, calls: Calls) -> str:
    listed = [
        {"tool_call_id": str(number), "tool_name": name, "parameters": args}
        for number, (name, args) in enumerate(calls)
    ]
    return content + (f"<|START_ACTION|>{text_of(listed)}<|END_ACTION|>" if calls else "")


def xml(opener: str, closer: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        blocks = []
        for name, args in calls:
            inside = "".join(f"<parameter={k}>\n{bare(v)}\n</parameter>\n" for k, v in args.items())
            blocks.append(f"{opener}\n<function={name}>\n{inside}</function>\n{closer}")
        return "\n\n".join(filter(None, [content, "\n".join(blocks)]))

    return write


def llama(content: str, calls: Calls) -> str:
    if not calls:
        return content
    return "; ".join(f'{{"name": "{n}", "parameters": {text_of(a)}}}' for n, a in calls)


def python(opener: str, closer: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        if not calls:
            return content
        shown = ", ".join(
            f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
            for name, args in calls
        )
        return f"{content}{opener}[{shown}]{closer}"

    return write


def mistral(content: str, calls: Calls) -> str:
    return content + "".join(f"[TOOL_CALLS]{name}[ARGS]{text_of(args)}" for name, args in calls)


def deepseek(head: str, tail: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        blocks = "\n".join(
            f"<{BAR}tool▁call▁begin{BAR}>{head.replace('NAME', name)}{text_of(args)}{tail}"
            f"<{BAR}tool▁call▁end{BAR}>"
            for name, args in calls
        )
        opener, closer = f"<{BAR}tool▁calls▁begin{BAR}>", f"<{BAR}tool▁calls▁end{BAR}>"
        return content + (f"{opener}{blocks}{closer}" if calls else "")

    return write


def deepseek_v32(content: str, calls: Calls) -> str:
    tag = f"{BAR}DSML{BAR}"
    blocks = ""
    for name, args in calls:
        blocks += f'<{tag}invoke name="{name}">\n'
        for key, value in args.items():
            kind = "true" if isinstance(value, str) else "false"
            blocks += (
                f'<{tag}parameter name="{key}" string="{kind}">{bare(value)}</{tag}parameter>\n'
            )
        blocks += f"</{tag}invoke>\n"
    shown = f"<{tag}function_calls>\n{blocks}</{tag}function_calls>" if calls else ""
    return "\n\n".join(filter(None, [content, shown]))


def kimi(content: str, calls: Calls) -> str:
    blocks = "".join(
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{text_of(args)}"
        "<|tool_call_end|>"
        for number, (name, args) in enumerate(calls)
    )
    shown = f"<|tool_calls_section_begin|>{blocks}<|tool_calls_section_end|>" if calls else ""
    return content + shown


def glm(line: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        blocks = []
        for name, args in calls:
            pairs = "".join(
                f"{line}<arg_key>{key}</arg_key>{line}<arg_value>{bare(value)}</arg_value>"
                for key, value in args.items()
            )
            blocks.append(f"<tool_call>{name}{pairs}{line}</tool_call>")
        return line.join(filter(None, [content, *blocks]))

    return write


def minimax(content: str, calls: Calls) -> str:
    blocks = ""
    for name, args in calls:
        inside = "".join(
            f'<parameter name="{key}">{bare(value)}</parameter>\n' for key, value in args.items()
        )
        blocks += f'<invoke name="{name}">\n{inside}</invoke>\n'
    shown = f"<minimax:tool_call>\n{blocks}</minimax:tool_call>" if calls else ""
    return "\n".join(filter(None, [content, shown]))


def harmony(content: str, calls: Calls) -> str:
    messages = [f"<|channel|>commentary<|message|>{content}<|end|>"] if content else []
    messages += [
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{text_of(args)}"
        for name, args in calls
    ]
    return "<|call|><|start|>assistant".join(messages) + ("<|call|>" if calls else "")


def gemma3(content: str, calls: Calls) -> str:
    lines = "".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})\n"
        for name, args in calls
    )
    return content + (f"\n```tool_code\n{lines}```" if calls else "")


def gemma4(value: Any, quote: str = '<|"|>') -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma4(item, quote)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gemma4(item, quote) for item in value) + "]"
    return text_of(value)


def gemma(opener: str, closer: str, quote: str) -> Callable[[str, Calls], str]:
    def write(content: str, calls: Calls) -> str:
        return content + "".join(
            f"{opener}call:{name}{gemma4(args, quote)}{closer}" for name, args in calls
        )

    return write


def fenced(content: str, calls: Calls) -> str:
    shown = [f'{{"name": "{name}", "arguments": {text_of(args)}}}' for name, args in calls]
    return content + (f"\n```json\n{shown[0]}\n```" if shown else "")


WIRES: dict[str, Wire] = {
    "hermes": Wire(hermes, reasoning="qwen3", thinking=think),
    "qwen3_coder": Wire(
        xml("<tool_call>", "</tool_call>"), is_raw=False, reasoning="qwen3", thinking=think
    ),
    "seed_oss": Wire(
        xml("<seed:tool_call>", "</seed:tool_call>"),
        is_raw=False,
        reasoning="seed_oss",
        thinking=lambda text: f"<seed:think>{text}</seed:think>\n",
    ),
    "llama3_json": Wire(llama, keeps_content=False),
    "pythonic": Wire(python("", ""), is_raw=False, keeps_content=False),
    "lfm2": Wire(
        python("<|tool_call_start|>", "<|tool_call_end|>"),
        is_raw=False,
        reasoning="qwen3",
        thinking=think,
    ),
    "mistral": Wire(mistral, reasoning="mistral", thinking=lambda text: f"[THINK]{text}[/THINK]"),
    "deepseek_v3": Wire(
        deepseek(f"function<{BAR}tool▁sep{BAR}>NAME\n```json\n", "\n```"),
        reasoning="deepseek_r1",
        thinking=lambda text: f"{text}\n</think>\n\n",
    ),
    "deepseek_v31": Wire(
        deepseek(f"NAME<{BAR}tool▁sep{BAR}>", ""), reasoning="qwen3", thinking=think
    ),
    "deepseek_v32": Wire(deepseek_v32, is_raw=False, reasoning="qwen3", thinking=think),
    "kimi_k2": Wire(kimi, reasoning="kimi_k2", thinking=lambda text: f"<think>{text}</think>"),
    "glm45": Wire(
        glm("\n"),
        is_raw=False,
        reasoning="glm45",
        thinking=lambda text: f"<think>\n{text}\n</think>\n",
    ),
    "minimax_m2": Wire(
        minimax,
        is_raw=False,
        reasoning="minimax_m2",
        thinking=lambda text: f"{text}\n</think>\n\n",
    ),
    "minimax_m1": Wire(json_list("<tool_calls>", "</tool_calls>")),
    "cohere": Wire(
        cohere,
        reasoning="cohere",
        thinking=lambda text: f"<|START_THINKING|>{text}<|END_THINKING|>",
    ),
    "nemotron": Wire(json_list("<TOOLCALL>", "</TOOLCALL>"), reasoning="qwen3", thinking=think),
    "harmony": Wire(
        harmony,
        reasoning="harmony",
        thinking=lambda text: f"<|channel|>analysis<|message|>{text}<|end|><|start|>assistant",
    ),
    "gemma3": Wire(gemma3, is_raw=False),
    "functiongemma": Wire(
        gemma("<start_function_call>", "<end_function_call>", "<escape>"), is_raw=False
    ),
    "gemma4": Wire(
        gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
        is_raw=False,
        reasoning="gemma4",
        thinking=lambda text: f"<|channel>thought\n{text}\n<channel|>",
    ),
    "granite": Wire(
        json_list("<|tool_call|>", ""),
        reasoning="granite",
        thinking=lambda text: f"Here is my thought process:\n{text}\nHere is my response:\n\n",
    ),
    "json": Wire(fenced, is_parallel=False),
}
