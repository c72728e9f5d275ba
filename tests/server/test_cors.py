# SPDX-License-Identifier: Apache-2.0
"""Pages of allowed origins may call the server from a browser; what a browser reads is there."""

import httpx
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tokenlight.base.errors import ConfigError
from tokenlight.config import ServerConfig
from tokenlight.server.app import ENDPOINTS

PAGE = "https://chat.example"
STRANGER = "https://stranger.example"
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
ALLOWED = "access-control-allow-origin"


@pytest.fixture(scope="module")
def server():
    with running(api_key="key", allowed_origins=(PAGE, "http://localhost:3000")) as made:
        yield made


def preflight(url: str, origin: str, method: str = "POST", **more: str) -> httpx.Response:
    """What a browser asks before it sends JSON and a key: it never sends the key with it."""
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        **more,
    }
    return httpx.options(url, headers=headers)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")
def test_every_endpoint_may_be_asked_for_before_the_key_is_sent(server, endpoint):
    answer = preflight(server.url + endpoint.path, PAGE, endpoint.method)
    assert (answer.status_code, answer.headers[ALLOWED]) == (200, PAGE)
    assert endpoint.method in answer.headers["access-control-allow-methods"].split(", ")
    allowed = answer.headers["access-control-allow-headers"].split(",")
    assert {"authorization", "content-type", "x-stainless-os"} <= set(allowed)
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize(
    ("path", "key", "fields", "status"),
    [
        (CHAT, "key", {}, 200),
        (CHAT, "wrong", {}, 401),
        (CHAT, "key", {"temperature": 9}, 400),
        (CHAT, "key", {"model": "other"}, 404),
        ("/v2/none", "key", {}, 404),
    ],
)
def test_answers_and_errors_can_be_read_by_the_page_that_asked(server, path, key, fields, status):
    for origin in (PAGE, "http://localhost:3000"):
        headers = {"origin": origin, "authorization": f"Bearer {key}"}
        answer = httpx.post(server.url + path, json={**BODY, **fields}, headers=headers)
        assert (answer.status_code, answer.headers[ALLOWED]) == (status, origin)
        assert answer.headers["access-control-expose-headers"] == "*"
        assert answer.headers["x-request-id"]


def test_a_stranger_gets_no_leave(server):
    asked = preflight(server.url + CHAT, STRANGER)
    assert (asked.status_code, ALLOWED in asked.headers) == (400, False)
    headers = {"origin": STRANGER, "authorization": "Bearer key"}
    answer = httpx.post(server.url + CHAT, json=BODY, headers=headers)
    assert (answer.status_code, ALLOWED in answer.headers) == (200, False)
    assert answer.headers["vary"] == "Origin", "a cache must not keep it for the allowed"


def test_only_listed_origins_may_come_from_public_pages_to_a_private_network(server):
    public = {"access-control-request-private-network": "true"}
    answer = preflight(server.url + CHAT, PAGE, **public)
    assert (answer.status_code, answer.headers[ALLOWED]) == (200, PAGE)
    assert answer.headers["access-control-allow-private-network"] == "true"
    refused = preflight(server.url + CHAT, STRANGER, **public)
    assert (refused.status_code, ALLOWED in refused.headers) == (400, False)
    with running(allowed_origins=("*",)) as open_to_all:
        refused = preflight(open_to_all.url + CHAT, PAGE, **public)
    assert refused.status_code == 400
    assert "access-control-allow-private-network" not in refused.headers


def test_a_stream_begins_before_it_ends():
    engine = FakeEngine(script="x" * 150, token_s=0.2)  # longer than the client waits
    headers = {"origin": PAGE}
    with (
        running(engine, allowed_origins=("*",)) as server,
        httpx.stream(
            "POST", server.url + CHAT, json={**BODY, "stream": True}, headers=headers, timeout=10
        ) as answer,
    ):
        assert answer.headers[ALLOWED] == "*"
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert next(answer.iter_lines()).startswith("data: ")
        assert preflight(server.url + CHAT, STRANGER).headers[ALLOWED] == "*"


def test_an_engine_that_dies_is_read_by_pages_too():
    with running(FakeEngine(fail_after=0), allowed_origins=("*",)) as server:
        answer = httpx.post(server.url + CHAT, json=BODY, headers={"origin": PAGE})
        assert (answer.status_code, answer.headers[ALLOWED]) == (503, "*")


def test_without_the_flag_no_page_is_let_in():
    with running() as server:
        asked = preflight(server.url + CHAT, PAGE)
        assert (asked.status_code, asked.json()["error"]["code"]) == (405, "method_not_allowed")
        answer = httpx.post(server.url + CHAT, json=BODY, headers={"origin": PAGE})
        for headers in (asked.headers, answer.headers):
            assert not [name for name in headers if name.startswith(("access-control", "vary"))]


@pytest.mark.parametrize(
    "origin",
    [
        "",
        '["*"]',
        "chat.example",
        "https://Chat.example",
        f"{PAGE}/",
        f"{PAGE}/path",
        "https://*.chat.example",
        f"{PAGE}:443",
        "http://localhost:80",
        "http://[::1]:80",
        "http://localhost:3000,*",
        "https://a,b",
        "https://user@x",
        "https://bücher.example",
    ],
)
def test_what_no_browser_sends_as_origin_is_refused(origin):
    with pytest.raises(ConfigError, match="--allowed-origins takes what browsers send as Origin"):
        ServerConfig(allowed_origins=(PAGE, origin))


def test_several_in_one_are_told_how_to_be_given():
    with pytest.raises(ConfigError, match="several are separated by spaces"):
        ServerConfig(allowed_origins=(f"{PAGE},http://localhost:3000",))


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://[::1]:3000",
        "http://localhost:8080",
        "http://localhost:443",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdef",
    ],
)
def test_other_origins_of_browsers(origin):
    assert ServerConfig(allowed_origins=(origin,)).allowed_origins == (origin,)
