# SPDX-License-Identifier: Apache-2.0
"""The API key: who gets in, with which header, and what stays open."""

import httpx
import pytest
from openai import AuthenticationError

from tests.server.running import MODEL, running
from tokenlight.server.app import ENDPOINTS
from tokenlight.server.http import auth

KEY = "s3cret-ключ"


@pytest.fixture(scope="module")
def server():
    with running(api_key=KEY) as made:
        yield made


@pytest.fixture(scope="module")
def plain_server():
    with running(api_key="plain") as made:
        yield made


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": b"Bearer " + KEY.encode()},
        {"authorization": b"bearer " + KEY.encode()},
        {"x-api-key": KEY.encode()},
    ],
)
def test_either_header_carries_the_key(server, headers):
    assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "carries none"),
        ({"authorization": "Bearer wrong"}, "is wrong"),
        ({"authorization": "Basic cGxhaW4="}, "carries none"),
        ({"x-api-key": ""}, "is wrong"),
        ({"x-api-key": "plainer"}, "is wrong"),
        ({"x-api-key": b"\xff\xfe"}, "is wrong"),
    ],
)
def test_anything_else_is_401(plain_server, headers, message):
    answer = httpx.get(f"{plain_server.url}/v1/models", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.json()["error"]["type"] == "authentication_error"
    assert message in answer.json()["error"]["message"]


def test_the_openai_client_gets_its_own_error_class(plain_server):
    assert plain_server.client(api_key="plain").models.list().data[0].id == MODEL
    with pytest.raises(AuthenticationError):
        plain_server.client(api_key="wrong").models.list()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
def test_only_what_says_so_is_open(plain_server, endpoint):
    path = endpoint.path.replace("{model_id:path}", MODEL)
    answer = httpx.request(endpoint.method, plain_server.url + path)
    assert (answer.status_code == 401) == (not endpoint.is_open)


def test_open_endpoints_tell_no_secrets():
    assert {e.path for e in ENDPOINTS if e.is_open} == {
        "/",
        "/api/event_logging/batch",
        "/api/hello",
        "/health",
        "/ready",
        "/version",
        "/metrics",
        "/openapi.json",
        "/docs",
    }


def test_a_refused_request_is_refused_before_its_body_is_read(plain_server):
    connection = plain_server.connect()
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
    )
    assert connection.recv(65536).startswith(b"HTTP/1.1 401")
    connection.close()


@pytest.fixture(scope="module")
def admin_server():
    with running(api_key="user", admin_api_key="admin") as made:
        yield made


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/abort_requests", "admin", 200),
        ("/abort_requests", "user", 401),
        ("/abort_requests", None, 401),
        ("/tokenize", "admin", 200),
        ("/tokenize", "user", 200),
        ("/tokenize", "other", 401),
    ],
)
def test_the_admin_key_opens_everything_and_the_users_key_not_admin_endpoints(
    admin_server, path, key, status
):
    headers = {} if key is None else {"x-api-key": key}
    body = {"request_ids": [], "prompt": "x"}
    assert httpx.post(admin_server.url + path, json=body, headers=headers).status_code == status


def test_without_an_admin_key_admin_endpoints_are_closed_and_the_rest_is_open():
    with running() as server:
        answer = httpx.post(f"{server.url}/abort_requests", json={"request_ids": []})
        assert answer.status_code == 401
        assert "--admin-api-key" in answer.json()["error"]["message"]
        assert httpx.get(f"{server.url}/v1/models").status_code == 200


def test_an_admin_key_alone_asks_users_for_nothing():
    with running(admin_api_key="admin") as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 200
        body = {"request_ids": []}
        assert httpx.post(f"{server.url}/abort_requests", json=body).status_code == 401


def test_keys_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(auth.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    with running(api_key="plain") as server:
        httpx.get(f"{server.url}/v1/models", headers={"x-api-key": "nope"})
    assert compared == [(b"nope", b"plain")]
