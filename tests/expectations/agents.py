# SPDX-License-Identifier: Apache-2.0
"""Requests in the shapes that coding agents send, with texts of our own, in all three protocols."""

from __future__ import annotations

import json

import httpx

BILLING = "x-anthropic-billing-header: cc_version=2.1.332.{}; cc_entrypoint=sdk-cli; cch={};"
INSTRUCTIONS = "You are an agent. " + "Read before you write, and say what you did. " * 40
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
    "required": ["command"],
    "additionalProperties": False,
}


def claude_code(messages: list[dict], *, nonce: str = "e8f", **fields) -> dict:
    """Claude Code 2.1: three system blocks, deferred tools, adaptive thinking without display."""
    return {
        "model": "tiny",
        "system": [
            {"type": "text", "text": BILLING.format(nonce, nonce * 2)},
            {
                "type": "text",
                "text": "You are Claude Code.",
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": INSTRUCTIONS, "cache_control": {"type": "ephemeral"}},
        ],
        "messages": messages,
        "tools": [
            {"name": "Bash", "description": "Run a command.", "input_schema": SCHEMA},
            {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True},
        ],
        "metadata": {"user_id": '{"device_id": "x"}'},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        **fields,
    }


def codex(items: list[dict], **fields) -> dict:
    """Codex 0.171: developer messages, namespaces, hosted tools, a dozen fields."""
    developer = {"type": "message", "id": "msg_d", "role": "developer"}
    return {
        "model": "tiny",
        "input": [
            {**developer, "content": [{"type": "input_text", "text": INSTRUCTIONS}]},
            *items,
        ],
        "tools": [
            {
                "type": "function",
                "name": "exec_command",
                "description": "Run a command.",
                "strict": False,
                "parameters": SCHEMA,
            },
            {
                "type": "namespace",
                "name": "multi_agent_v1",
                "description": "Sub-agents.",
                "tools": [
                    {"type": "function", "name": "close", "strict": False, "parameters": SCHEMA}
                ],
            },
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
            {"type": "web_search", "external_web_access": True},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "key",
        "client_metadata": {"session_id": "s", "x-codex-window-id": "w:0"},
        **fields,
    }


def say(text: str) -> dict:
    return {"role": "user", "content": text}


def post(server, path: str, body: dict, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=30)


def data_of(text: str) -> list[dict]:
    """The JSON events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]
