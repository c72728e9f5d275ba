# SPDX-License-Identifier: Apache-2.0
"""/metrics, read by prometheus-client's own parser."""

import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running

HI = [{"role": "user", "content": "hi"}]


def scrape(server) -> dict[str, float]:
    """Sample -> value, one label set per sample but for the distinguishing label."""
    found = {}
    for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
        for sample in family.samples:
            assert sample.labels["model_name"] == MODEL
            rest = {k: v for k, v in sample.labels.items() if k not in ("model_name", "le")}
            found["/".join([sample.name, *rest.values()])] = sample.value
    return found


def test_requests_and_tokens_are_counted():
    with running(FakeEngine(script="abc")) as server:
        client = server.client()
        client.chat.completions.create(model=MODEL, messages=HI)
        client.chat.completions.create(model=MODEL, messages=HI, max_tokens=2, n=2)
        seen = scrape(server)
    assert seen["vllm:request_success_total/stop"] == 1
    assert seen["vllm:request_success_total/length"] == 2
    assert seen["vllm:request_success_total/abort"] == 0
    assert seen["vllm:time_to_first_token_seconds_count"] == 3
    assert seen["vllm:inter_token_latency_seconds_count"] == 3 + 1 + 1
    assert seen["vllm:e2e_request_latency_seconds_count"] == 3
    assert seen["vllm:request_generation_tokens_sum"] == 4 + 2 + 2
    assert seen["vllm:request_prompt_tokens_sum"] == 3 * len("user: hi\nassistant:")
    assert seen["tokenlight_open_http_requests"] == 1  # the scrape itself


def test_the_engines_own_counts_are_shown():
    with running() as server:
        seen = scrape(server)
    assert seen["vllm:num_requests_waiting"] == 3
    assert seen["vllm:kv_cache_usage_perc"] == 0.25
    assert seen["vllm:prefix_cache_hits_total"] == 11
    assert seen["vllm:num_preemptions_total"] == 2
    assert seen["tokenlight_kv_blocks_free"] == 75
    assert seen["tokenlight_engine_up"] == 1


def test_times_are_those_that_passed():
    with running(FakeEngine(script="abcd", first_token_s=0.2, token_s=0.05)) as server:
        start_s = time.monotonic()
        server.client().chat.completions.create(model=MODEL, messages=HI)
        took_s = time.monotonic() - start_s
        seen = scrape(server)
    first_s = seen["vllm:time_to_first_token_seconds_sum"]
    others_s = seen["vllm:inter_token_latency_seconds_sum"]
    assert first_s > 0.2
    assert others_s > 0.15
    # However late a busy machine makes each of them.
    assert first_s + others_s <= seen["vllm:e2e_request_latency_seconds_sum"] + 1e-6
    assert seen["vllm:e2e_request_latency_seconds_sum"] < took_s


def test_a_delivery_of_several_tokens_is_several_latencies():
    engine = FakeEngine(script="a" * 9, tokens_per_delta=5, token_s=0.05)
    with running(engine) as server:
        server.client().chat.completions.create(model=MODEL, messages=HI)
        seen = scrape(server)
    assert seen["vllm:inter_token_latency_seconds_count"] == 5
    # The time between the two deliveries: once, and not once for each token.
    others_s = seen["vllm:inter_token_latency_seconds_sum"]
    assert others_s > 0.045
    first_s, whole_s = (
        seen[f"vllm:{name}_seconds_sum"] for name in ("time_to_first_token", "e2e_request_latency")
    )
    assert others_s <= whole_s - first_s + 1e-6


def test_errors_are_counted_by_code_midway_or_not():
    with running(FakeEngine(error_after=1)) as server:
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "stream": True})
        httpx.post(f"{server.url}/v1/completions", json={"prompt": ""})
        httpx.get(f"{server.url}/nothing")
        seen = scrape(server)
    assert seen["tokenlight_errors_total/engine_error"] == 1
    assert seen["tokenlight_errors_total/invalid_request"] == 1
    assert seen["tokenlight_errors_total/route_not_found"] == 1
    assert seen["vllm:request_success_total/error"] == 1
