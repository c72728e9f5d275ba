# SPDX-License-Identifier: Apache-2.0
"""What is written to the log of an exchange, and what is not."""

import logging

import anthropic
import httpx
import pytest

from tests.server.anthropic_asking import HI
from tests.server.running import MODEL, running


@pytest.mark.parametrize("root_path", ["", "/llm"])
def test_those_who_watch_the_server_do_not_fill_its_log(caplog, root_path):
    with caplog.at_level(logging.INFO, "tokenlight.server"), running(root_path=root_path) as server:
        for path in ("/health", "/ready", "/metrics", "/version"):
            assert httpx.get(server.url + path).status_code == 200
    said = [line for r in caplog.records if (line := r.getMessage()).startswith("request ")]
    assert len(said) == 1, said
    assert f"path={root_path}/version" in said[0]


@pytest.mark.parametrize("root_path", ["", "/llm"])
def test_errors_have_their_protocols_shape_below_a_proxys_path_too(root_path):
    with running(root_path=root_path) as server:
        for path, kind in (("/v1/messages", "invalid_request_error"), ("/v1/messages/no", "not_f")):
            body = httpx.post(server.url + path, json={}).json()
            assert body["type"] == "error"
            assert body["error"]["type"].startswith(kind)
        assert "type" not in httpx.post(f"{server.url}/v1/chat/completions", json={}).json()
        named = {"anthropic-version": "2023-06-01"}
        assert httpx.get(f"{server.url}/v1/models/no", headers=named).json()["type"] == "error"
        for path in ("/v1/v1/messages", "/messages", "/v1/nothing"):
            body = httpx.post(server.url + path, json={}, headers=named).json()
            assert (body["type"], body["error"]["type"]) == ("error", "not_found_error"), path
            assert "type" not in httpx.post(server.url + path, json={}).json()
        for path in ("/v1/chat/completions", "/tokenize", "/v1/responses"):
            assert "type" not in httpx.post(server.url + path, json={}, headers=named).json(), path
        answer = httpx.get(f"{server.url}/v1/completions", headers=named)
        assert (answer.status_code, "type" in answer.json()) == (405, False)


def test_a_wrong_base_url_of_the_official_client_is_its_own_error():
    with running() as server:
        asking = anthropic.Anthropic(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
        with asking, pytest.raises(anthropic.NotFoundError) as refused:
            asking.messages.create(model=MODEL, max_tokens=1, messages=HI)
    assert refused.value.body["error"]["type"] == "not_found_error"
    assert refused.value.body["request_id"] == refused.value.request_id
    assert "did you mean /v1/messages?" in refused.value.body["error"]["message"]
