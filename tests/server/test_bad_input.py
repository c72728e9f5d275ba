# SPDX-License-Identifier: Apache-2.0
"""The tables of bad inputs in docs/errors.md: each row is sent, and answered as it says."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.server.bad_inputs import (
    BODY_LIMIT,
    MAX_WAITING,
    SECTIONS,
    chat,
    completion,
    message,
)
from tests.server.fake_engine import CONTEXT_TOKENS, FakeEngine
from tests.server.running import running

PAGE = Path(__file__).parents[2] / "docs/errors.md"


def rows(section):
    """Status, code and param of each row below a heading, by the input's name."""
    table = PAGE.read_text().partition("## Bad inputs")[2].partition(f"### {section}\n")[2]
    table = table.partition("\n#")[0]
    found = re.findall(r"^\| (.+?) \| (\d+) \| `(\w+)` \| (?:`(.+)`)? *\|$", table, re.MULTILINE)
    return {name: (int(status), code, param or None) for name, status, code, param in found}


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(), max_waiting=MAX_WAITING, max_body_bytes=BODY_LIMIT) as made:
        yield made


@pytest.mark.parametrize("section", SECTIONS)
def test_the_table_and_the_inputs_are_the_same_list(section):
    assert list(rows(section)) == list(SECTIONS[section])


def test_every_section_of_the_page_is_sent():
    page = PAGE.read_text().partition("## Bad inputs")[2]
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == list(SECTIONS)


@pytest.mark.parametrize(
    ("section", "name"),
    [(section, name) for section, inputs in SECTIONS.items() for name in inputs],
)
def test_a_bad_input_is_answered_as_the_table_says(server, section, name):
    path, body = SECTIONS[section][name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(server.url + path, content=data)
    status, code, param = rows(section)[name]
    assert answer.status_code == status
    error = answer.json()["error"]
    if section == "Messages":
        assert set(error) == {"message", "type"}
        assert error["type"] == code
        assert param is None or f"'{param}'" in error["message"]
    else:
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["code"], error["param"]) == (code, param)
    assert len(error["message"]) > 20
    assert answer.headers["x-request-id"]
    assert not server.engine.seen, "nothing of it may reach the engine"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (chat(temperature=2.5), "'temperature' must be a number from 0 to 2 or null, got 2.5"),
        (chat(n=0), "'n' must be a whole number from 1 to 128 or null, got 0"),
        (message(role="wizard"), "'messages[0].role' must be one of 'assistant', 'developer'"),
        (
            chat(logit_bias={str(i): 1 for i in range(1025)}),
            "'logit_bias' must be an object of at most 1024 fields or null",
        ),
        (chat(model="gpt-5"), "this server has 'tiny'"),
        (
            message(content="x" * CONTEXT_TOKENS),
            "the prompt has 217 tokens, but this server's context is 200 tokens",
        ),
        (completion(prompt=[5, 100_000]), "the token id 100000, this model has 0 to 256"),
        (
            chat(structured_outputs={"jsonschema": {}}),
            "'structured_outputs' has no field 'jsonschema'; it may have json, json_object, regex,",
        ),
    ],
)
def test_a_message_has_what_was_sent_and_what_is_allowed(server, body, message):
    path, fields = body
    assert message in httpx.post(server.url + path, json=fields).json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/messages", "/v1/messages? Then the client adds /v1 itself"),
        ("//v1/chat/completions", "/v1/chat/completions? Then the client's base URL ends with a"),
        ("/chat/completions", "/v1/chat/completions? Then the client's base URL must end in /v1"),
    ],
)
def test_a_wrong_base_url_is_told_of(server, path, meant):
    answer = httpx.post(server.url + path, json={})
    assert answer.status_code == 404
    assert f"did you mean {meant}" in answer.json()["error"]["message"]


def test_a_wrong_base_url_below_a_proxys_path_is_told_of():
    with running(FakeEngine(), root_path="/llm") as made:
        answer = httpx.post(made.url + "/v1/v1/messages", json={})
    assert "did you mean /v1/messages? Then" in answer.json()["error"]["message"]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "gzip, br"])
def test_a_compressed_body_is_refused_as_such(server, coding):
    answer = httpx.post(
        server.url + "/v1/responses", content=b"x", headers={"content-encoding": coding}
    )
    assert answer.status_code == 400
    assert f"content-encoding '{coding}'" in answer.json()["error"]["message"]
    path, body = chat()
    for slip in ("identity", "utf-8"):
        plain = httpx.post(server.url + path, json=body, headers={"content-encoding": slip})
        assert plain.status_code == 200
    server.engine.seen.clear()


def test_an_answer_does_not_repeat_all_that_was_sent(server):
    """It says what was sent and what to do; a megabyte of it is nobody's to read, or to log."""
    path, body = chat(model="m" * 1_000_000)
    for answer in (
        httpx.post(server.url + path, json=body),
        httpx.get(server.url + "/" + "p" * 9000),
    ):
        assert answer.status_code == 404
        assert len(answer.content) < 3000
        assert "characters left out" in answer.json()["error"]["message"]
    assert "send that name" in httpx.post(server.url + path, json=body).json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": None, "response_format": {"type": "text"}, "modalities": ["text"]},
        {"functions": None, "function_call": None, "store": False, "best_of": 1},
        {"user": "someone", "metadata": {"a": "b"}, "a_field_of_next_year": 5},
        {"temperature": None, "stop": None, "stream_options": None, "seed": None, "n": None},
    ],
)
def test_a_field_that_asks_for_nothing_is_let_through(server, fields):
    path, body = chat(**fields)
    assert httpx.post(server.url + path, json=body).status_code == 200
    server.engine.seen.clear()
