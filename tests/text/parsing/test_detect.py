# SPDX-License-Identifier: Apache-2.0
"""Formats told from chat templates: small ones of the tests' own, rendered by Jinja."""

import json
from typing import Any

import pytest
from jinja2.sandbox import SandboxedEnvironment

from tests.text.parsing.wires import BAR, WIRES
from tokenlight.text.parsing import TOOL_FORMATS, detect, pick, round_trip
from tokenlight.text.parsing.formats import get_tool_format

HEAD = "{% for m in messages %}{% if m.role == 'user' %}[U]{{ m.content }}{% else %}[A]"
TAIL = "{% endif %}{% endfor %}{% if add_generation_prompt %}[A]{% endif %}"
EACH = "{% for c in m.tool_calls %}"

# What the formats' templates write for an assistant's calls.
TEMPLATES = {
    "hermes": EACH + '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}",
    "qwen3_coder": EACH + "<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else (v | tojson if v is iterable else v) }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{% endfor %}",
    "llama3_json": "{# <|start_header_id|> #}" + EACH + '{"name": "{{ c.function.name }}", '
    '"parameters": {{ c.function.arguments | tojson }}}{% endfor %}<|eot_id|>',
    "mistral": "[TOOL_CALLS][" + EACH + '{"name": "{{ c.function.name }}", "arguments": '
    '{{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% endfor %}]</s>',
    "deepseek_v3": f"<{BAR}tool▁calls▁begin{BAR}>" + EACH + f"<{BAR}tool▁call▁begin{BAR}>"
    f"{{{{ c.type }}}}<{BAR}tool▁sep{BAR}>{{{{ c.function.name }}}}\n```json\n"
    f"{{{{ c.function.arguments | tojson }}}}\n```<{BAR}tool▁call▁end{BAR}>{{% endfor %}}"
    f"<{BAR}tool▁calls▁end{BAR}>",
    "deepseek_v31": f"<{BAR}tool▁calls▁begin{BAR}>" + EACH + f"<{BAR}tool▁call▁begin{BAR}>"
    f"{{{{ c.function.name }}}}<{BAR}tool▁sep{BAR}>{{{{ c.function.arguments | tojson }}}}"
    f"<{BAR}tool▁call▁end{BAR}>{{% endfor %}}<{BAR}tool▁calls▁end{BAR}>",
    "kimi_k2": "<|tool_calls_section_begin|>" + EACH + "<|tool_call_begin|>functions."
    "{{ c.function.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
    "{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>",
    "glm45": EACH + "<tool_call>{{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %}\n<arg_key>{{ k }}</arg_key>\n<arg_value>"
    "{{ v if v is string else v | tojson }}</arg_value>{% endfor %}\n</tool_call>{% endfor %}",
    "minimax_m2": "<minimax:tool_call>\n" + EACH + '<invoke name="{{ c.function.name }}">\n'
    '{% for k, v in c.function.arguments.items() %}<parameter name="{{ k }}">'
    "{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>\n{% endfor %}"
    "</minimax:tool_call>",
    "harmony": EACH + "<|start|>assistant<|channel|>commentary to=functions.{{ c.function.name }} "
    "<|constrain|>json<|message|>{{ c.function.arguments | tojson }}<|call|>{% endfor %}",
    "granite": "{# <|start_of_role|> #}<|tool_call|>[" + EACH + '{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}{% endfor %}]',
}


def environment() -> SandboxedEnvironment:
    made = SandboxedEnvironment()
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def renderer(source: str):
    template = environment().from_string(source)

    def render(
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
    ) -> str:
        return template.render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
        )

    return render


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_template_is_detected_and_passes_its_round_trip(name: str) -> None:
    source = HEAD + TEMPLATES[name] + TAIL
    picked = pick(source, renderer(source))
    assert detect(source)[0].name == name
    assert picked.tools.name == name
    assert picked.round_trip.is_same, picked.round_trip.reason


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_format_that_the_template_does_not_speak_fails_the_round_trip(name: str) -> None:
    others = {"mistral": "kimi_k2", "qwen3_coder": "glm45", "hermes": "glm45"}
    trip = round_trip(
        renderer(HEAD + TEMPLATES[name] + TAIL), get_tool_format(others.get(name, "mistral"))
    )
    speaks_both = name == "hermes"  # GLM's reader takes JSON in its tags as well
    assert trip.is_same == speaks_both
    assert trip.renders_calls
    assert bool(trip.reason) != speaks_both


def test_a_template_that_misleads_is_caught_by_the_round_trip() -> None:
    source = (
        "{# not <tool_call>, nor <function= #}"
        + HEAD
        + TEMPLATES["kimi_k2"].replace(
            "<|tool_calls_section_begin|>", "{{ '<|tool_calls_section' + '_begin|>' }}"
        )
        + TAIL
    )
    assert detect(source)[0].name == "qwen3_coder"
    picked = pick(source, renderer(source))
    assert picked.tools.name == "kimi_k2"
    assert picked.round_trip.is_same


def test_a_template_without_calls_says_so() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    picked = pick(source, renderer(source))
    assert picked.tools.name == "json"
    assert not picked.round_trip.renders_calls
    assert "does not render tool calls" in picked.round_trip.reason


def test_a_template_that_raises_says_so() -> None:
    source = "{{ nothing.at.all }}"
    trip = round_trip(renderer(source), TOOL_FORMATS["json"])
    assert not trip.is_same
    assert "UndefinedError" in trip.reason


def test_arguments_that_do_not_survive_are_reported() -> None:
    source = HEAD + TEMPLATES["hermes"].replace("c.function.arguments | tojson", "'{}'") + TAIL
    trip = round_trip(renderer(source), TOOL_FORMATS["hermes"])
    assert not trip.is_same
    assert trip.reason == "the arguments came back as {}"


@pytest.mark.parametrize(
    ("source", "tools", "reasoning"),
    [
        ("plain", "json", "none"),
        ("<start_of_turn>", "gemma3", "none"),
        ("<start_function_call>", "functiongemma", "none"),
        ("<|tool_call>call: <|channel>thought", "gemma4", "gemma4"),
        ("<|python_start|>", "pythonic", "none"),
        ("<|tool_call_start|>", "lfm2", "none"),
        ("[TOOL_CALLS] [THINK]", "mistral", "mistral"),
        ("<seed:tool_call> <seed:think>", "seed_oss", "seed_oss"),
        ("<TOOLCALL>", "nemotron", "none"),
        ("<|START_ACTION|> <|START_THINKING|>", "cohere", "cohere"),
        ("<tool_calls>", "minimax_m1", "none"),
        ("<minimax:tool_call> <think>", "minimax_m2", "minimax_m2"),
        ("<arg_key> <tool_call> [gMASK] <think></think>", "glm45", "glm45"),
        (f"<{BAR}DSML{BAR}invoke", "deepseek_v32", "none"),
        ("<|tool_calls_section_begin|> <|im_middle|> <think>", "kimi_k2", "kimi_k2"),
        ("<tool_call> </think> {% if add_generation_prompt %}<|a|>{% endif %}", "hermes", "qwen3"),
        (
            "<tool_call> </think> {% if add_generation_prompt %}<|a|><think>{% endif %}",
            "hermes",
            "deepseek_r1",
        ),
        ("<|start|> <|channel|> <|message|> <think>", "harmony", "harmony"),
        ("<|start_of_role|> <|tool_call|> <think>", "granite", "granite"),
    ],
)
def test_signs(source: str, tools: str, reasoning: str) -> None:
    found_tools, found_reasoning = detect(source)
    assert (found_tools.name, found_reasoning.name) == (tools, reasoning)


def test_every_listed_format_can_be_detected() -> None:
    for name in WIRES:
        format = TOOL_FORMATS[name]
        if name != "json":
            assert any(detect(" ".join(signs))[0] is format for signs in format.signs), name
