# SPDX-License-Identifier: Apache-2.0
"""What a request asks for and does not get is named: in a header, or in a refusal."""

import httpx

from tests.server.running import running

HI = [{"role": "user", "content": "hi"}]


def test_servers_of_tools_that_nobody_asks_here_are_named():
    servers = [{"type": "url", "url": "https://tools.example", "name": name} for name in "ab"]
    with running() as server:
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            body = {"messages": HI, "mcp_servers": servers}
            answer = httpx.post(server.url + path, json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-tokenlight-ignored"] == "mcp_servers=2"
            answer = httpx.post(server.url + path, json={**body, "mcp_servers": []})
            assert "x-tokenlight-ignored" not in answer.headers


def test_log_probabilities_of_a_response_are_refused_by_either_name():
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    with running() as server:
        for param, value in asked.items():
            answer = httpx.post(f"{server.url}/v1/responses", json={"input": "hi", param: value})
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("unsupported_parameter", param)
        sealed = {"input": "hi", "include": ["reasoning.encrypted_content"]}
        assert httpx.post(f"{server.url}/v1/responses", json=sealed).status_code == 200
