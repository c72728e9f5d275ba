# SPDX-License-Identifier: Apache-2.0
"""A call that the model began and never ended is not to be run: no protocol says that it is.

Its arguments are cut anywhere, and a client's own reader of half a JSON text drops what is cut.
"""

import httpx
import pytest

from tests.server.scripted_engine import call, scripted
from tests.server.test_messages import ask as ask_message
from tests.server.test_messages import events_of as message_events

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
RM = {"name": "rm", "description": "Remove.", "input_schema": PARAMETERS}
FUNCTION = {"name": "rm", "description": "Remove.", "parameters": PARAMETERS}
WHOLE = call("rm", '{"path": "/a"}')
UNENDED = '<tool_call>\n{"name": "rm", "arguments": {"path": "/srv/data", "dry_'
MALFORMED = call("rm", '{"path": }')


def chat(server, **fields):
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": FUNCTION}],
        **fields,
    }
    return httpx.post(f"{server.url}/v1/chat/completions", json=body).json()["choices"][0]


def response(server):
    body = {"input": "x", "tools": [{"type": "function", **FUNCTION}]}
    return httpx.post(f"{server.url}/v1/responses", json=body).json()


@pytest.mark.parametrize("text", [UNENDED, WHOLE + "\n" + UNENDED])
def test_the_model_ends_inside_a_call(text):
    with scripted(text) as server:
        assert ask_message(server, tools=[RM]).stop_reason == "max_tokens"
        assert message_events(server, tools=[RM])[-2].delta.stop_reason == "max_tokens"
        assert chat(server)["finish_reason"] == "length"
        answered = response(server)
    assert answered["status"] == "incomplete"
    assert answered["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answered["output"][-1]["status"] == "incomplete"


def test_a_stop_text_inside_a_call():
    text = call("rm", '{"path": "/srv/STOP/data"}')
    with scripted(text) as server:
        answer = ask_message(server, tools=[RM], stop_sequences=["STOP"])
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "STOP")
        assert chat(server, stop=["STOP"])["finish_reason"] == "stop"


@pytest.mark.parametrize("text", [WHOLE, MALFORMED])
def test_a_call_that_was_ended_is_the_clients(text):
    """Arguments that are no JSON are told to the model by the client that cannot read them."""
    with scripted(text) as server:
        assert ask_message(server, tools=[RM]).stop_reason == "tool_use"
        assert chat(server)["finish_reason"] == "tool_calls"
        assert response(server)["status"] == "completed"
