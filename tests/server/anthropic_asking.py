# SPDX-License-Identifier: Apache-2.0
"""Asking a test's server with the official Anthropic client, and without it."""

import anthropic
import httpx

from tests.server.running import MODEL

BASH = {
    "name": "bash",
    "description": "Run a command.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}
HI = [{"role": "user", "content": "hi"}]


def client(server) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0, timeout=20)


def ask(server, messages=HI, **fields):
    fields = {"max_tokens": 1000, **fields}
    with client(server) as asking:
        return asking.messages.create(model=MODEL, messages=messages, **fields)


def events_of(server, messages=HI, **fields):
    fields = {"max_tokens": 1000, "stream": True, **fields}
    with client(server) as asking:
        return list(asking.messages.create(model=MODEL, messages=messages, **fields))


def post(server, path="/v1/messages", **body):
    body = {"messages": HI, "max_tokens": 100, **body}
    return httpx.post(f"{server.url}{path}", json=body, timeout=20)


def heard(server) -> str:
    return server.engine.heard[-1].text
