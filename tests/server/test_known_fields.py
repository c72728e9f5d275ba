# SPDX-License-Identifier: Apache-2.0
"""Every field that the official clients can send is one that the server knows.

Their request types are walked, so a field that a newer client has is found here, and not by a user
whose wish was dropped without a word.
"""

from typing import get_type_hints

import httpx
import pytest
from anthropic.types.beta import message_create_params as messages
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.responses import input_token_count_params as input_tokens
from openai.types.responses import response_create_params as responses

from tests.server.running import running
from tokenlight.server.messages.schema import MessagesRequest
from tokenlight.server.responses.schema import ResponsesRequest
from tokenlight.server.schemas.chat import ChatRequest
from tokenlight.server.schemas.completion import CompletionRequest
from tokenlight.server.schemas.unsupported import (
    CHAT,
    COMPLETION,
    MESSAGES,
    RESPONSES,
    fields_of,
)

HI = [{"role": "user", "content": "hi"}]
ASKED = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": HI},
    "/v1/responses": {"input": "hi"},
    "/v1/responses/input_tokens": {"input": "hi"},
}
PROTOCOLS = {
    "chat": (chat.CompletionCreateParamsBase, ChatRequest, CHAT),
    "completions": (completions.CompletionCreateParamsBase, CompletionRequest, COMPLETION),
    "messages": (messages.MessageCreateParamsBase, MessagesRequest, MESSAGES),
    "responses": (responses.ResponseCreateParamsBase, ResponsesRequest, RESPONSES),
    "input_tokens": (input_tokens.InputTokenCountParams, ResponsesRequest, RESPONSES),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_field_of_the_official_client_is_read_or_refused(protocol):
    params, schema, unsupported = PROTOCOLS[protocol]
    sent = get_type_hints(params).keys() - {"betas"}  # a header
    assert len(sent) > (10 if protocol == "input_tokens" else 15)
    assert not sent - fields_of(schema) - unsupported.keys()
    assert not fields_of(schema) & unsupported.keys()


REFUSED = {
    "/v1/chat/completions": {
        "moderation": {"model": "m"},
        "include_reasoning": False,
        "add_special_tokens": True,
        "length_penalty": 2,
    },
    "/v1/completions": {"add_special_tokens": False, "spaces_between_special_tokens": False},
    "/v1/messages": {
        "container": "c",
        "speed": "fast",
        "thread": {"type": "continue", "previous_message_id": "m"},
        "fallbacks": "default",
    },
    "/v1/messages/count_tokens": {"compaction": {"type": "summarize"}},
    "/v1/responses": {"access_programs": {"cyber": "daybreak_red"}},
    "/v1/responses/input_tokens": {"conversation": "conv_1", "personality": "friendly"},
}
LET_THROUGH = {
    "/v1/chat/completions": {
        "service_tier": "flex",
        "verbosity": "low",
        "prediction": {"type": "content", "content": "hi"},
        "prompt_cache_key": "k",
        "include_reasoning": True,
        "add_special_tokens": False,
        "length_penalty": 1.0,
        "metadata": {"trace": 7, "tags": ["x"], "none": None},
    },
    "/v1/completions": {"add_special_tokens": True, "spaces_between_special_tokens": None},
    "/v1/messages": {
        "speed": "standard",
        "thread": {"type": "create"},
        "cache_control": {"type": "ephemeral"},
        "diagnostics": {"previous_message_id": None},
    },
    "/v1/responses": {"truncation": "disabled", "service_tier": "priority", "moderation": None},
}


@pytest.mark.parametrize("path", ASKED)
def test_what_is_known_and_not_supported_is_refused_by_its_name(path):
    with running() as server:
        for name, value in REFUSED[path].items():
            answer = httpx.post(server.url + path, json={**ASKED[path], name: value})
            assert answer.status_code == 400, name
            assert answer.json()["error"]["message"].startswith(f"'{name}' is not supported"), name
        asked = {**ASKED[path], **LET_THROUGH.get(path, {})}
        assert httpx.post(server.url + path, json=asked).status_code == 200


def test_what_a_message_asks_of_its_history_is_named():
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "compact_20260112"}]
    fields = {
        "context_management": {"edits": edits},
        "output_config": {"task_budget": {"type": "tokens", "total": 9}},
    }
    with running() as server:
        answer = httpx.post(f"{server.url}/v1/messages", json={**ASKED["/v1/messages"], **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-tokenlight-ignored"] == (
        "task_budget=1, clear_thinking_20251015=1, compact_20260112=1"
    )


@pytest.mark.parametrize(
    ("path", "name", "value", "said"),
    [
        ("/v1/responses", "truncation", "auto", "truncation=1"),
        ("/v1/responses", "truncation", "disabled", None),
        ("/v1/responses", "context_management", [{"type": "compaction"}, {}], "compaction=1"),
        ("/v1/messages", "diagnostics", {"previous_message_id": "msg_1"}, "diagnostics=1"),
        ("/v1/messages", "diagnostics", {"previous_message_id": None}, None),
    ],
)
def test_what_changes_nothing_of_a_conversation_that_fits_is_named(path, name, value, said):
    with running() as server:
        answer = httpx.post(server.url + path, json={**ASKED[path], name: value})
    assert answer.status_code == 200, answer.text
    ignored = answer.headers.get("x-tokenlight-ignored")
    assert ignored is None if said is None else said in ignored.split(", ")


def test_a_response_keeps_the_verbosity_that_was_asked_for():
    with running() as server:
        asked = {"input": "hi", "text": {"verbosity": "low"}}
        answer = httpx.post(f"{server.url}/v1/responses", json=asked).json()
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "low"}
