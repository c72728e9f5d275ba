# SPDX-License-Identifier: Apache-2.0
"""Templates that write what the families' own templates write, in as few words, and conversations.

What is tested is that one template and one conversation give one text and the same ids here and in
transformers, for all that these families make of Jinja2.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """A template, the special tokens it writes, and what its conversations may have."""

    template: str
    special_tokens: tuple[str, ...]
    vocabulary: str = "byte-level"
    has_tools: bool = True


_LLAMA3 = """
{{- bos_token }}
{%- set date_string = date_string if date_string is defined else '26 Jul 2024' %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Today Date: ' + date_string + '\\n\\n' }}
{%- if tools is not none and not tools_in_user_message %}
    {{- 'Functions:\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- '\\n\\n' }}
    {%- endfor %}
{%- endif %}
{{- system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or message.tool_calls) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.tool_calls %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception('This model takes one tool call at a time!') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

_QWEN25 = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content }}
    {%- else %}{{- 'You are Qwen.' }}{%- endif %}
    {{- '\\n\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first)
        or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != 'tool') %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

_QWEN3 = """
{%- if messages[0].role == 'system' or tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {%- for tool in tools or [] %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == 'user' and message.content is string
        and not (message.content.startswith('<tool_response>')
                 and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- set call = call.function if call.function else call %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}
            {%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

_MISTRAL = """
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set users = loop_messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if tools is not none and (message == users[-1]) %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != 'return' %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ', ' }}{%- endif %}
                {%- endfor %}
                {{- '}}' }}
                {%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' }}{%- endif %}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {%- if system is defined and loop.last %}
            {{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + '[/INST]' }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if tool_call.id is not defined or tool_call.id|length != 9 %}
                {{- raise_exception('Tool call ids are nine characters long!') }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content']|trim + eos_token }}
    {%- elif message['role'] == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' }}
        {{- message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Only user, assistant and tool roles are known here!') }}
    {%- endif %}
{%- endfor %}
"""

_GEMMA3 = """
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = '' -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('Invalid content type') }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

_SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are SmolLM.<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL_TOKENS = (
    "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
)  # fmt: skip

FAMILIES = {
    "llama3": Family(_LLAMA3, _HEADERS),
    "qwen2": Family(_QWEN25, ("<|im_start|>", "<|im_end|>")),
    "qwen3": Family(_QWEN3, ("<|im_start|>", "<|im_end|>", "<think>", "</think>")),
    "mistral": Family(_MISTRAL, _MISTRAL_TOKENS, "spm-llama"),
    "gemma3": Family(_GEMMA3, ("<start_of_image>",), "spm-gemma", has_tools=False),
    "smollm": Family(_SMOLLM, ("<|im_start|>", "<|im_end|>"), has_tools=False),
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f'{name} of a <place>, "quoted" & naïve',
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "a city"},
                    "days": {"type": "integer", "enum": [1, 2, 7]},
                },
                "required": ["place"],
            },
        },
    }
    for name in ("get_weather", "get_time")
]


def _call(call_id: str, arguments: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def _result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "get_weather", "content": content}


_SYSTEM = {"role": "system", "content": "  Be brief.\n"}
PLAIN_CONVERSATIONS = {
    "one turn": [_user("Hi! <b>é</b> 日本 😀")],
    "system": [_SYSTEM, _user("Hi")],
    "turns": [_user("a"), _assistant(" b \n"), _user("c\n\n  d"), _assistant("e"), _user("")],
    "system and turns": [_SYSTEM, _user("a"), _assistant("b"), _user("c")],
    "open answer": [_user("a"), _assistant("b")],
    "special tokens in the text": [_user("<|im_end|>\n<|im_start|>system\n[INST]<end_of_turn>")],
    "thinking": [_user("a"), _assistant("<think>\nx\n</think>\n\nb"), _user("c")],
}
TOOL_CONVERSATIONS = {
    "one call": [
        _SYSTEM,
        _user("Weather?"),
        _assistant(None, tool_calls=[_call("abcdefghi", '{"place": "Köln", "days": 2}')]),
        _result("abcdefghi", '{"degrees": 20}'),
    ],
    "call and answer": [
        _user("Weather?"),
        _assistant(
            "Let me see.", tool_calls=[_call("abcdefghi", {"place": "Rome", "n": [1, None]})]
        ),
        _result("abcdefghi", "20 °C\nsunny"),
        _assistant("It is sunny."),
        _user("Thanks"),
    ],
    "two calls": [
        _user("Weather?"),
        _assistant(
            "",
            reasoning_content="two places",
            tool_calls=[_call("abcdefghi", '{"place": "A"}'), _call("123456789", "{}")],
        ),
        _result("abcdefghi", "1"),
        _result("123456789", "2"),
    ],
    "a call whose arguments are broken": [
        _user("Weather?"),
        _assistant(None, tool_calls=[_call("abcdefghi", '{"place": ')]),
        _result("abcdefghi", "error"),
    ],
}
