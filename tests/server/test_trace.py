# SPDX-License-Identifier: Apache-2.0
"""What is written to the log of an exchange, and what is not."""

import logging

import httpx
import pytest

from tests.server.running import running


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
