# SPDX-License-Identifier: Apache-2.0
"""What takes long to render is rendered on a thread: the event loop has other streams to serve."""

import threading
from unittest.mock import patch

import httpx
import pytest

from tests.server.scripted_engine import scripted
from tokenlight.server.answer import prompt

LONG = "x" * 5000


def function(**fields):
    return [{"type": "function", "function": {"name": "f", **fields}}]


@pytest.mark.parametrize(
    ("fields", "is_long"),
    [
        ({"tools": function(parameters={"type": "object"})}, False),
        ({"tools": function(description=LONG)}, True),
        ({"tools": function(parameters={"type": "object", "description": LONG})}, True),
        ({"messages": [{"role": "user", "content": LONG}]}, True),
    ],
)
def test_long_parts_are_rendered_on_a_thread(fields, is_long):
    threads = []

    def render(*arguments):
        threads.append(threading.current_thread())
        return real(*arguments)

    real = prompt._render
    with scripted("Yes.") as server, patch.object(prompt, "_render", render):
        loops = threading.enumerate()
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, **fields}
        url = f"{server.url}/v1/chat/completions"
        assert httpx.post(url, json=body, timeout=20).status_code == 200
    assert (threads[0] not in loops) == is_long
