# SPDX-License-Identifier: Apache-2.0
"""Outputs of models, good and bad, with what they mean; tests of splits run over all of them."""

from dataclasses import dataclass
from typing import Any

from tests.text.parsing.wires import BAR, FUNCTIONS, WIRES

WEATHER = ("get_weather", '{"city": "Paris"}')
FILES = ("list_files", "{}")


@dataclass(frozen=True)
class Sample:
    """One output. `failures` are reasons; `calls` are (name, arguments text)."""

    name: str
    tools: str
    text: str
    reasoning_format: str = "none"
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    failures: tuple[str, ...] = ()
    is_cut: bool = False
    incomplete: tuple[int, ...] = ()
    starts_inside: bool | None = None


ARGS: dict[str, Any] = {
    "city": 'Zürich "old" \\ <town> {x} 日本 \t\n end',
    "days": 3,
    "scale": None,
    "exact": True,
    "limit": -2.5e3,
    "tags": ["a", "b\n"],
    "options": {"deep": [{"x": {}}, [], None]},
}


def from_wires() -> list[Sample]:
    """For each format: reasoning, content and calls as its wire writes them."""
    samples = []
    for tools, wire in WIRES.items():
        calls = [("get_weather", ARGS), ("list_files", {})][: 2 if wire.is_parallel else 1]
        content = "Let me look: 1 < 2." if wire.keeps_content else ""
        text = wire.write(content, calls)
        if wire.thinking:
            text = wire.thinking("First,\nI think.") + text
        samples.append(Sample(f"{tools}: all", tools, text, wire.reasoning))
        samples.append(Sample(f"{tools}: content", tools, wire.write("Only text.\n", [])))
    return samples


HERMES = [
    Sample(
        "call in reasoning",
        "hermes",
        '<think>\nI call.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "\n</tool_call>",
        "qwen3",
        reasoning="I call.",
        calls=(WEATHER,),
    ),
    Sample(
        "two calls in reasoning, then its end",
        "hermes",
        '<think>\nI call.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'
        '\n</tool_call>\n<tool_call>{"name": "list_files"}</tool_call>\n</think>\n<|im_end|>',
        "qwen3",
        reasoning="I call.",
        calls=(WEATHER, FILES),
    ),
    Sample(
        "quoted call in reasoning",
        "hermes",
        '<think>\nSay `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "</tool_call>` then.\n</think>\n\nDone.",
        "qwen3",
        content="Done.",
        reasoning='Say `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "</tool_call>` then.",
    ),
    Sample(
        "unknown tool in reasoning",
        "hermes",
        '<think>\nSay\n<tool_call>{"name": "example", "arguments": {}}</tool_call>',
        "qwen3",
        reasoning='Say\n<tool_call>{"name": "example", "arguments": {}}</tool_call>',
    ),
    Sample(
        "unfinished example in reasoning",
        "hermes",
        '<think>\nSay <tool_call>{"name": "get_weather", "arguments": {"city": "...\n</think>'
        "\n\nOk",
        "qwen3",
        content="Ok",
        reasoning='Say <tool_call>{"name": "get_weather", "arguments": {"city": "...',
    ),
    Sample(
        "call cut in reasoning",
        "hermes",
        '<think>\nSay <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "</tool_call>",
        "qwen3",
        reasoning='Say <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
        "</tool_call>",
        is_cut=True,
    ),
    Sample(
        "a call in reasoning holds no closer",
        "hermes",
        '<think>\n<tool_call>{"name": "write_file", "arguments": {"content": "</think>"}}'
        "</tool_call>",
        "qwen3",
        content='"}}</tool_call>',
        reasoning='<tool_call>{"name": "write_file", "arguments": {"content": "',
    ),
    Sample(
        "the draft in reasoning, the call behind it",
        "hermes",
        '<think>\n<tool_call>{"name": "list_files"}</tool_call>\n</think>\n\n'
        '<tool_call>{"name": "list_files"}</tool_call>',
        "qwen3",
        reasoning='<tool_call>{"name": "list_files"}</tool_call>',
        calls=(FILES,),
    ),
    Sample(
        "starts inside, opener repeated",
        "hermes",
        "<think>\nhm\n</think>\n\nHi",
        "qwen3",
        content="Hi",
        reasoning="hm",
        starts_inside=True,
    ),
    Sample("empty reasoning", "hermes", "<think>\n\n</think>\n\nHi", "qwen3", content="Hi"),
    Sample("a closer first", "hermes", "</think>\n\nHi", "qwen3", content="Hi"),
    Sample(
        "tags in the answer",
        "hermes",
        "The <think> tag and </think>.",
        "qwen3",
        content="The <think> tag and </think>.",
    ),
    Sample(
        "keys in another order",
        "hermes",
        '<tool_call>{"arguments": {"city": "Paris"}, "id": "x", "name": "get_weather"}</tool_call>',
        calls=(WEATHER,),
    ),
    Sample(
        "arguments as a string",
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        calls=(WEATHER,),
    ),
    Sample(
        "no arguments",
        "hermes",
        '<tool_call>{"name": "list_files", "arguments": null}</tool_call>'
        '<tool_call>{"name": "list_files"}</tool_call>'
        '<tool_call>{"name": "list_files", "arguments": ""}</tool_call>',
        calls=(FILES, FILES, FILES),
    ),
    Sample(
        "a brace too few, a brace too many",
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}\n</tool_call>\n'
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}}\n</tool_call>',
        calls=(WEATHER, WEATHER),
    ),
    Sample(
        "no closer",
        "hermes",
        'Ok\n<tool_call>{"name": "list_files", "arguments": {}}',
        content="Ok",
        calls=(FILES,),
    ),
    Sample(
        "the closer in a string",
        "hermes",
        '<tool_call>{"name": "write_file", "arguments": {"content": "</tool_call> <|im_end|>"}}'
        "</tool_call>\nDone",
        content="\nDone",
        calls=(("write_file", '{"content": "</tool_call> <|im_end|>"}'),),
    ),
    Sample(
        "a raw newline in a string",
        "hermes",
        '<tool_call>{"name": "write_file", "arguments": {"content": "a\nb\\\n"}}</tool_call>',
        calls=(("write_file", '{"content": "a\\nb\\\\n"}'),),
    ),
    Sample(
        "tags of another family",
        "hermes",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(WEATHER,),
    ),
    Sample(
        "a list of calls",
        "hermes",
        '<tool_call>[{"name": "list_files", "arguments": {}}, {"name": "list_files"}]</tool_call>!',
        content="!",
        calls=(FILES, FILES),
    ),
    Sample(
        "an opener in prose",
        "hermes",
        "It writes <tool_call> tags.",
        content="It writes tags.",
        failures=("not_a_call",),
    ),
    Sample(
        "no call inside",
        "hermes",
        "<tool_call></tool_call>",
        content="</tool_call>",
        failures=("not_a_call",),
    ),
    Sample(
        "no name",
        "hermes",
        '<tool_call>{"arguments": {}}</tool_call>',
        content="</tool_call>",
        failures=("not_a_call",),
    ),
    Sample(
        "a bad name",
        "hermes",
        '<tool_call>{"name": "get the weather", "arguments": {}}</tool_call>',
        content="{}}</tool_call>",
        failures=("bad_name",),
    ),
    Sample(
        "broken arguments",
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": Paris}}</tool_call>',
        calls=(("get_weather", '{"city": Paris}'),),
        failures=("invalid_arguments",),
        incomplete=(0,),
    ),
    Sample(
        "cut in arguments",
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
        calls=(("get_weather", '{"city": "Par'),),
        is_cut=True,
        incomplete=(0,),
    ),
    Sample(
        "ended in arguments",
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
        calls=(("get_weather", '{"city": "Par'),),
        failures=("unterminated",),
        incomplete=(0,),
    ),
    Sample(
        "cut before arguments",
        "hermes",
        '<tool_call>{"name": "get_wea',
        failures=("truncated",),
        is_cut=True,
    ),
    Sample("half an opener", "hermes", "Hm <tool_c", content="Hm <tool_c"),
    Sample("control tokens", "hermes", "a<|im_end|>b <|x y|> <|", content="ab <|x y|> <|"),
    Sample("white space only", "hermes", " \n", content=" \n"),
]

TAGS = [
    Sample(
        "a closing tag in a value",
        "qwen3_coder",
        "<tool_call>\n<function=write_file>\n<parameter=content>\n<a></parameter> <b>\n"
        "</parameter>x\n\n</parameter>\n</function>\n</tool_call>",
        calls=(("write_file", '{"content": "<a></parameter> <b>\\n</parameter>x\\n"}'),),
    ),
    Sample(
        "closing tags left out",
        "qwen3_coder",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n<parameter=content>\nx = 1\n"
        "</function>\n</tool_call>",
        calls=(("write_file", '{"path": "a.py", "content": "x = 1"}'),),
    ),
    Sample(
        "outer tag left out",
        "qwen3_coder",
        "Ok.\n\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
        content="Ok.",
        calls=(WEATHER,),
    ),
    Sample(
        "values of unsaid and wrong types",
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=days>\nthree\n</parameter>\n"
        "<parameter=exact>\nTrue\n</parameter>\n<parameter=other>\n{'a': [1, None]}\n</parameter>\n"
        '<parameter=scale>\nnull\n</parameter>\n<parameter=tags>\n["a"\n</parameter>\n'
        "</function>\n</tool_call>",
        calls=(
            (
                "get_weather",
                '{"days": "three", "exact": true, "other": {"a": [1, null]}, "scale": null, '
                '"tags": "[\\"a\\""}',
            ),
        ),
    ),
    Sample(
        "JSON where tags are due",
        "qwen3_coder",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls=(WEATHER,),
    ),
    Sample(
        "cut in a value",
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\n</para",
        calls=(("get_weather", '{"city": "Par'),),
        is_cut=True,
        incomplete=(0,),
    ),
    Sample(
        "ended behind a value",
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n",
        calls=(WEATHER,),
    ),
    Sample(
        "rubbish between parameters",
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\nhm",
        content="hm",
        failures=("not_a_call",),
    ),
    Sample(
        "prose behind an opener",
        "glm45",
        "The <tool_call> tags it writes.",
        content="The it writes.",
        failures=("not_a_call",),
    ),
    Sample(
        "no arguments in tags",
        "glm45",
        "<tool_call>list_files</tool_call>",
        calls=(FILES,),
    ),
    Sample(
        "on one line",
        "glm45",
        "hm</think>Ok.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
        "</tool_call>",
        "glm45",
        content="Ok.",
        reasoning="hm",
        calls=(WEATHER,),
        starts_inside=True,
    ),
]

OTHERS = [
    Sample(
        "an object that is no call",
        "llama3_json",
        '{"name": "Ann", "age": 3}',
        content='{"name": "Ann", "age": 3}',
    ),
    Sample(
        "a tag, then a call",
        "llama3_json",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>',
        calls=(WEATHER,),
    ),
    Sample(
        "a typed call",
        "llama3_json",
        ' {"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}\n\nSoon.',
        content="Soon.",
        calls=(WEATHER,),
    ),
    Sample(
        "code for the interpreter",
        "llama3_json",
        "<|python_tag|>print(1)",
        content="(1)",
        failures=("not_a_call",),
    ),
    Sample("a list that is no call", "pythonic", "[1, 2] it is", content="[1, 2] it is"),
    Sample(
        "strings of all kinds",
        "pythonic",
        '[write_file(path=\'a\\\'b\', content="""x "y" \\x41\\u00e9\\n\\q"""),'
        " write_file('p', \"c\"), write_file(path=\"\", content=r'\\x41')]",
        calls=(
            ("write_file", '{"path": "a\'b", "content": "x \\"y\\" Aé\\n\\\\q"}'),
            ("write_file", '{"path": "p", "content": "c"}'),
            ("write_file", '{"path": "", "content": "\\\\x41"}'),
        ),
    ),
    Sample(
        "literals of all kinds",
        "pythonic",
        "<|python_start|>[get_weather(options={'a': (1, 2.50, -3, 0x10, .5), 'b': [True, None,],"
        " 1: {}}, days=1_000)]<|python_end|>",
        calls=(
            (
                "get_weather",
                '{"options": {"a": [1, 2.50, -3, 16, 0.5], "b": [true, null], "1": {}}, '
                '"days": 1000}',
            ),
        ),
    ),
    Sample(
        "a JSON list",
        "mistral",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abcdefghi"},'
        ' {"name": "list_files", "arguments": {}}]</s>',
        content="</s>",
        calls=(WEATHER, FILES),
    ),
    Sample(
        "ids in the wire",
        "mistral",
        'Hi[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}'
        "[TOOL_CALLS]list_files{}",
        content="Hi",
        calls=(WEATHER, FILES),
    ),
    Sample("usage text", "mistral", "run x [ARGS] [TOOL", content="run x [ARGS] [TOOL"),
    Sample(
        "no section",
        "kimi_k2",
        'Hi<|tool_call_begin|>get_weather:3<|tool_call_argument_begin|>{"city": "Paris"}'
        "<|tool_call_end|><|im_end|>",
        content="Hi",
        calls=(WEATHER,),
    ),
    Sample(
        "of calls in reasoning, the closer in the first",
        "kimi_k2",
        "<think>So<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "</think> x"}<|tool_call_end|><|tool_call_begin|>'
        "functions.list_files:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        "kimi_k2",
        content=' x"}',
        reasoning='Sofunctions.get_weather:0{"city": "',
        calls=(FILES,),
    ),
    Sample(
        "no separator, no type",
        "deepseek_v3",
        f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>get_weather\n```json\n"
        f'{{"city": "Paris"}}\n```<{BAR}tool▁call▁end{BAR}><{BAR}end▁of▁sentence{BAR}>',
        calls=(WEATHER,),
    ),
    Sample(
        "no arguments under a head",
        "deepseek_v31",
        f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>list_files<{BAR}tool▁sep{BAR}>"
        f"<{BAR}tool▁call▁end{BAR}><{BAR}tool▁calls▁end{BAR}>",
        calls=(FILES,),
    ),
    Sample(
        "a recipient before the channel",
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.get_weather"
        '<|channel|>commentary json<|message|>{"city": "Paris"}',
        reasoning="hm",
        calls=(WEATHER,),
    ),
    Sample(
        "a recipient first of all",
        "harmony",
        ' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
        calls=(WEATHER,),
    ),
    Sample(
        "a final answer",
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi."
        "<|return|>",
        content="Hi.",
        reasoning="hm",
    ),
    Sample(
        "from inside an analysis",
        "harmony",
        "hm<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
        "harmony",
        content="Hi.",
        reasoning="hm",
        starts_inside=True,
    ),
    Sample("no header", "harmony", " to all: hi", content=" to all: hi"),
    Sample(
        "cut in a header",
        "harmony",
        "<|channel|>commentary to=functions.get_wea",
        failures=("truncated",),
        is_cut=True,
    ),
    Sample(
        "code for python",
        "harmony",
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        calls=(("python", "print(1)"),),
        failures=("invalid_arguments",),
        incomplete=(0,),
    ),
    Sample(
        "bare code",
        "gemma3",
        "[get_weather(city='Paris')]",
        calls=(WEATHER,),
    ),
    Sample(
        "a fence that is no call",
        "gemma3",
        'So:\n```json\n{"a": 1}\n```',
        content='So:\n```json\n{"a": 1}\n```',
    ),
    Sample(
        "a tag in Granite 3.1",
        "granite",
        '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        calls=(WEATHER,),
    ),
    Sample(
        "on a line of its own",
        "json",
        'I will:\n  {"name": "get_weather", "arguments": {"city": "Paris"}}\n',
        content="I will:",
        calls=(WEATHER,),
    ),
    Sample(
        "nested as OpenAI nests",
        "json",
        '[{"type": "function", "function": {"name": "get_weather", "arguments": '
        '{"city": "Paris"}}}]',
        calls=(WEATHER,),
    ),
    Sample(
        "code on lines",
        "json",
        'x:\n{\n  "a": [\n    {"b": 1}\n  ]\n}\n```\n{}\n```',
        content='x:\n{\n  "a": [\n    {"b": 1}\n  ]\n}\n```\n{}\n```',
    ),
    Sample("no format", "none", 'a <tool_call>{"name": "x"}', content='a <tool_call>{"name": "x"}'),
]

MEANT = [*HERMES, *TAGS, *OTHERS]
ALL = [*from_wires(), *MEANT]

__all__ = ["ALL", "ARGS", "FUNCTIONS", "MEANT", "Sample"]
