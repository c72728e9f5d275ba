# SPDX-License-Identifier: Apache-2.0
"""Bodies that are too much, at every endpoint that reads one: refused, and nobody else notices."""

import httpx
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.running import running
from tokenlight.server.app import ENDPOINTS

READING = sorted(endpoint.path for endpoint in ENDPOINTS if endpoint.request is not None)
ADMIN = {"authorization": "Bearer admin"}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(), admin_api_key="admin") as made:
        yield made


def code_of(answer: httpx.Response) -> str:
    """By either protocol's error shape."""
    error = answer.json()["error"]
    return error.get("code") or error["type"]


@pytest.mark.parametrize("path", READING)
def test_fifty_megabytes_are_too_large(server, path):
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * (50 << 20) + b'"}]}'
    answer = httpx.post(server.url + path, content=body, headers=ADMIN, timeout=30)
    assert answer.status_code == 413
    assert code_of(answer) in ("body_too_large", "request_too_large")


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("path", READING)
def test_a_hundred_thousand_levels_are_too_deep(server, path, is_list):
    opened, closed = (b"[", b"]") if is_list else (b'{"x":', b"}")
    body = b'{"messages": ' + opened * 100_000 + b"1" + closed * 100_000 + b"}"
    answer = httpx.post(server.url + path, content=body, headers=ADMIN, timeout=30)
    assert answer.status_code == 400
    assert "nests deeper" in answer.json()["error"]["message"]


def nested(depth: int, *, key: str = "properties") -> dict:
    made: dict = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", key: {"a": made}}
    return made


@pytest.mark.parametrize("depth", [20, 100, 200, 400])
@pytest.mark.parametrize(
    "fields",
    [
        lambda deep: {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}]
        },
        lambda deep: {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}],
            "tool_choice": "required",
        },
        lambda deep: {
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": deep}}
        },
        lambda deep: {"chat_template_kwargs": {"x": deep}},
        lambda deep: {"metadata": deep},
    ],
    ids=["a tool", "a forced tool", "a shape", "a variable", "a field unread"],
)
def test_what_is_deep_and_can_be_read_is_answered_or_refused(server, fields, depth):
    body = {"messages": HI, "max_tokens": 5, **fields(nested(depth))}
    answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=30)
    assert answer.status_code in (200, 400), answer.text
