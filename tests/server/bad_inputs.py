# SPDX-License-Identifier: Apache-2.0
"""What clients send by mistake, by the section of docs/errors.md that has its row."""

from tests.server.fake_engine import CONTEXT_TOKENS

MAX_WAITING = 100
BODY_LIMIT = 4 << 20

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


def chat(**fields):
    return CHAT, {"messages": [{"role": "user", "content": "hi"}], **fields}


def message(**fields):
    return CHAT, {"messages": [{"role": "user", "content": "hi", **fields}]}


def completion(**fields):
    return COMPLETION, {"prompt": "hi", **fields}


CHAT_AND_COMPLETIONS = {
    "no body": (CHAT, b""),
    "not JSON": (CHAT, b"{'messages': 1}"),
    "not UTF-8": (CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}'),
    "two JSON values": (CHAT, b"{} {}"),
    "a list instead of an object": (CHAT, b"[]"),
    "a number that no float holds": (CHAT, b'{"temperature": 1e999}'),
    "a million nested lists": (CHAT, b'{"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "no messages": (CHAT, {}),
    "an empty list of messages": chat(messages=[]),
    "messages as a string": chat(messages="hi"),
    "a message without a role": chat(messages=[{"content": "hi"}]),
    "an unknown role": message(role="wizard"),
    "content as a number": message(content=7),
    "an image part": message(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
    "a template variable that is a field": chat(chat_template_kwargs={"messages": []}),
    "a text part without text": message(content=[{"type": "text"}]),
    "a tool call without a function": message(role="assistant", tool_calls=[{"id": "1"}]),
    "temperature as a string": chat(temperature="hot"),
    "temperature below 0": chat(temperature=-0.1),
    "temperature above 2": chat(temperature=2.5),
    "top_p below 0": chat(top_p=-0.1),
    "top_k below -1": chat(top_k=-2),
    "min_p above 1": chat(min_p=1.5),
    "n of 0": chat(n=0),
    "n of 129": chat(n=129),
    "n as a fraction": chat(n=1.5),
    "max_tokens of 0": chat(max_tokens=0),
    "max_tokens as true": chat(max_tokens=True),
    "max_completion_tokens below 1": chat(max_completion_tokens=-1),
    "a seed of 70 bits": chat(seed=1 << 70),
    "min_tokens of 70 bits": chat(min_tokens=1 << 70),
    "an empty stop string": chat(stop=""),
    "a stop token that the model lacks": chat(stop_token_ids=[70_000]),
    "65 stop strings": chat(stop=["x"] * 65),
    "stream_options without stream": chat(stream_options={"include_usage": True}),
    "a tool without a name": chat(tools=[{"type": "function", "function": {}}]),
    "tool_choice of another protocol": chat(tool_choice={"type": "any"}),
    "tool_choice without a type": chat(tool_choice={"name": "f"}),
    "tool_choice of a tool that is not there": chat(
        tool_choice={"type": "function", "function": {"name": "f"}}
    ),
    "a json_schema without its schema": chat(response_format={"type": "json_schema"}),
    "a response_format without a type": chat(response_format={}),
    "an unknown kind of structured output": chat(structured_outputs={"jsonschema": {}}),
    "functions": chat(functions=[{"name": "f"}]),
    "audio": chat(audio={"voice": "alloy", "format": "mp3"}),
    "another model": chat(model="gpt-5"),
    "a prompt longer than the context": message(content="x" * CONTEXT_TOKENS),
    "no prompt": (COMPLETION, {}),
    "an empty prompt": completion(prompt=""),
    "an empty list of prompts": completion(prompt=[]),
    "a token id that the model lacks": completion(prompt=[5, 100_000]),
    "token ids among texts": completion(prompt=["hi", 5]),
    "more choices than the server holds": completion(prompt=["hi"] * (MAX_WAITING + 1)),
    "min_tokens above max_tokens": chat(min_tokens=5, max_tokens=4),
    "a penalty above 2": chat(presence_penalty=2.1),
    "a repetition penalty of 0": chat(repetition_penalty=0),
    "a bias of 101": chat(logit_bias={"5": 101}),
    "a bias of a word": chat(logit_bias={"hello": 1}),
    "a bias of a token that the model lacks": chat(logit_bias={"70000": 1}),
    "1025 biases": chat(logit_bias={str(i): 1 for i in range(1025)}),
    "a structural tag": chat(structured_outputs={"structural_tag": "{}"}),
    "a regex of 140,000 characters": chat(guided_regex="(a|b)" * 28_000),
    "21 top_logprobs": chat(logprobs=True, top_logprobs=21),
    "top_logprobs without logprobs": chat(top_logprobs=3),
    "21 prompt_logprobs": completion(prompt_logprobs=21),
    "prompt_logprobs below 0": chat(prompt_logprobs=-1),
    "prompt_logprobs of a stream": completion(prompt_logprobs=1, stream=True),
    "prompt_logprobs of a streamed chat": chat(prompt_logprobs=0, stream=True),
    "best_of": completion(best_of=3),
    "suffix": completion(suffix="the end"),
    "a body over the limit": (CHAT, b" " * (BODY_LIMIT + 1)),
    "an unknown path": ("/v1/nothing", {}),
    "a wrong method": ("/v1/models", {}),
}

RESPONSES = "/v1/responses"


def response(**fields):
    return RESPONSES, {"input": "hi", **fields}


def item(**fields):
    return response(input=[fields])


RESPONSES_INPUTS = {
    "not JSON": (RESPONSES, b"input=hi"),
    "no input": (RESPONSES, {}),
    "an empty list of items": response(input=[]),
    "input_tokens of nothing": (f"{RESPONSES}/input_tokens", {}),
    "input as a number": response(input=5),
    "an item that is a string": response(input=["hi"]),
    "an unknown role": item(role="wizard", content="hi"),
    "content as a number": item(role="user", content=5),
    "an image": item(role="user", content=[{"type": "input_image", "image_url": "x"}]),
    "a text part without text": item(role="user", content=[{"type": "input_text"}]),
    "an item of a kind that nobody knows, alone": item(type="memory_output", output="5"),
    "max_output_tokens of 0": response(max_output_tokens=0),
    "temperature above 2": response(temperature=2.1),
    "top_p above 1": response(top_p=1.5),
    "a seed of 70 bits": response(seed=1 << 70),
    "a tool without a name": response(tools=[{"type": "function"}]),
    "tool_choice of a tool that is not there": response(
        tool_choice={"type": "function", "name": "f"}
    ),
    "a json_schema without its schema": response(text={"format": {"type": "json_schema"}}),
    "a text format without a type": response(text={"format": {}}),
    "a response that was never stored": response(previous_response_id="resp_1"),
    "background": response(background=True),
    "top_logprobs": response(top_logprobs=2),
    "log probabilities to include": response(include=["message.output_text.logprobs"]),
    "a mode of reasoning": response(reasoning={"mode": "pro"}),
    "another model": response(model="gpt-5"),
    "a prompt longer than the context": response(input="x" * CONTEXT_TOKENS),
    "a body over the limit": (RESPONSES, b" " * (BODY_LIMIT + 1)),
}

MESSAGES = "/v1/messages"
FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


def anthropic(**fields):
    return MESSAGES, {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}], **fields}


def anthropic_message(**fields):
    return anthropic(messages=[{"role": "user", "content": "hi", **fields}])


MESSAGES_INPUTS = {
    "not JSON": (MESSAGES, b"hello"),
    "no messages": (MESSAGES, {"max_tokens": 10}),
    "an empty list of messages": anthropic(messages=[]),
    "an unknown role": anthropic_message(role="wizard"),
    "content as a number": anthropic_message(content=5),
    "an image": anthropic_message(content=[{"type": "image", "source": {"type": "base64"}}]),
    "a PDF": anthropic_message(content=[{"type": "document", "source": {"type": "base64"}}]),
    "a text block without text": anthropic_message(content=[{"type": "text"}]),
    "max_tokens below 0": anthropic(max_tokens=-1),
    "a thinking budget below 0": anthropic(thinking={"type": "enabled", "budget_tokens": -1}),
    "a thinking budget of 70 bits": anthropic(
        thinking={"type": "enabled", "budget_tokens": 1 << 70}
    ),
    "temperature above 2": anthropic(temperature=2.1),
    "65 stop sequences": anthropic(stop_sequences=["x"] * 65),
    "an empty stop sequence": anthropic(stop_sequences=[""]),
    "a tool without a name": anthropic(tools=[{"input_schema": {"type": "object"}}]),
    "a tool whose schema is text": anthropic(tools=[{"name": "f", "input_schema": "x"}]),
    "tool_choice of a tool that is not there": anthropic(tool_choice={"type": "tool", "name": "f"}),
    "an unknown kind of tool_choice": anthropic(tool_choice={"type": "some"}),
    "a json_schema without its schema": anthropic(
        output_config={"format": {"type": "json_schema"}}
    ),
    "an output format without a type": anthropic(output_config={"format": {}}),
    "an output format in two places": anthropic(
        output_config={"format": FORMAT}, output_format=FORMAT
    ),
    "another model": anthropic(model="claude-9"),
    "a prompt longer than the context": anthropic_message(content="x" * CONTEXT_TOKENS),
    "a body over the limit": (MESSAGES, b" " * (BODY_LIMIT + 1)),
    "count_tokens of nothing": ("/v1/messages/count_tokens", {}),
}

TOKENS_INPUTS = {
    "nothing to tokenize": ("/tokenize", {}),
    "a prompt that is a number": ("/tokenize", {"prompt": 5}),
    "tools with a prompt": ("/tokenize", {"prompt": "hi", "tools": [{"type": "function"}]}),
    "messages that are empty": ("/tokenize", {"messages": []}),
    "tokens of another model": ("/tokenize", {"prompt": "hi", "model": "gpt-5"}),
    "no tokens to detokenize": ("/detokenize", {}),
    "tokens that are text": ("/detokenize", {"tokens": "hi"}),
    "a token that the model lacks": ("/detokenize", {"tokens": [70_000]}),
    "a token below 0": ("/detokenize", {"tokens": [-1]}),
    "an end of other people's requests without its key": ("/abort_requests", {"request_ids": []}),
    "a reset of the cache without its key": ("/reset_prefix_cache", {}),
}

# By heading
SECTIONS = {
    "Chat completions and completions": CHAT_AND_COMPLETIONS,
    "Responses": RESPONSES_INPUTS,
    "Messages": MESSAGES_INPUTS,
    "Tokens and administration": TOKENS_INPUTS,
}
