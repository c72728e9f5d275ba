# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics.

Where the meaning is vLLM's, the name is vLLM's (`vllm:...`), so that dashboards made for it work;
the rest is `tokenlight_...`. Totals that the engine counts are read from its heartbeat on scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tokenlight import wire
from tokenlight.base.clock import now_s
from tokenlight.base.errors import EngineError

# A `_created` series beside every other one: twice the size, and no dashboard reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LATENCY_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0),
)
_INTER_TOKEN_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0),
)
_TOKENS = tuple(float(4**power) for power in range(11))
_FINISH_REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """One server's counters, in a registry of its own: two servers in one process do not mix."""

    def __init__(self, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds", "From submission to the first token.", _LATENCY_S
        )
        self._inter_token = self._histogram(
            "vllm:inter_token_latency_seconds", "Between deliveries, per token.", _INTER_TOKEN_S
        )
        self._e2e = self._histogram(
            "vllm:e2e_request_latency_seconds", "From submission to the end.", _LATENCY_S
        )
        self._prompt_tokens = self._histogram(
            "vllm:request_prompt_tokens", "Prompt tokens per finished request.", _TOKENS
        )
        self._generation_tokens = self._histogram(
            "vllm:request_generation_tokens", "Sampled tokens per finished request.", _TOKENS
        )
        self._finished = Counter(
            "vllm:request_success",
            "Finished requests by reason.",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        self._errors = Counter(
            "tokenlight_errors",
            "Answers that were errors, by their code.",
            ("model_name", "code"),
            registry=self._registry,
        )
        self._parse_failures = Counter(
            "tokenlight_parse_errors",
            "Tool calls that the model began and did not make, by parser and reason.",
            ("model_name", "parser", "reason"),
            registry=self._registry,
        )
        self._disconnects = Counter(
            "tokenlight_client_disconnects",
            "Clients that went away before their answer was complete.",
            ("model_name",),
            registry=self._registry,
        ).labels(model_name)
        self._open = Gauge(
            "tokenlight_open_http_requests",
            "HTTP requests that are being answered.",
            ("model_name",),
            registry=self._registry,
        ).labels(model_name)
        for reason in _FINISH_REASONS:
            self._finished.labels(model_name, reason)

    def watch(self, status: Callable[[], wire.Status], is_healthy: Callable[[], bool]) -> None:
        """Show the engine's own counts from now on."""
        self._registry.register(_EngineCounts(self._model_name, status, is_healthy))

    def start_choice(self, *, num_prompt_tokens: int) -> ChoiceTiming:
        return ChoiceTiming(self, num_prompt_tokens)

    def count_error(self, code: str) -> None:
        self._errors.labels(self._model_name, code).inc()

    def count_parse_failure(self, parser: str, reason: str) -> None:
        self._parse_failures.labels(self._model_name, parser, reason).inc()

    def count_disconnect(self) -> None:
        self._disconnects.inc()

    def open_request(self) -> None:
        self._open.inc()

    def close_request(self) -> None:
        self._open.dec()

    def observe_first_token(self, latency_s: float) -> None:
        self._ttft.observe(latency_s)

    def observe_inter_token(self, latency_s: float) -> None:
        self._inter_token.observe(latency_s)

    def observe_finished(
        self, *, reason: str, e2e_s: float, num_prompt_tokens: int, num_sampled_tokens: int
    ) -> None:
        self._finished.labels(self._model_name, reason).inc()
        self._e2e.observe(e2e_s)
        self._prompt_tokens.observe(num_prompt_tokens)
        self._generation_tokens.observe(num_sampled_tokens)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(
            name, help_text, ("model_name",), buckets=buckets, registry=self._registry
        )
        return family.labels(self._model_name)


class ChoiceTiming:
    """The clock of one choice; leaving it unfinished counts as an abort or an error."""

    def __init__(self, metrics: Metrics, num_prompt_tokens: int) -> None:
        self._metrics = metrics
        self._num_prompt_tokens = num_prompt_tokens
        self._num_sampled_tokens = 0
        self._start_s = self._last_s = now_s()
        self._is_finished = False

    def observe(self, num_sampled_tokens: int, finish_reason: str | None) -> None:
        """Note a delivery: tokens sampled so far, and why it was the last, if it was."""
        num_new_tokens = num_sampled_tokens - self._num_sampled_tokens
        if num_new_tokens > 0:
            time_s = now_s()
            if self._num_sampled_tokens == 0:
                self._metrics.observe_first_token(time_s - self._start_s)
            else:
                gap_s = (time_s - self._last_s) / num_new_tokens
                for _ in range(num_new_tokens):
                    self._metrics.observe_inter_token(gap_s)
            self._last_s = time_s
            self._num_sampled_tokens = num_sampled_tokens
        if finish_reason is not None:
            self._finish(finish_reason)

    def __enter__(self) -> ChoiceTiming:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_finished:
            self._finish("error" if isinstance(error, Exception) else "abort")

    def _finish(self, reason: str) -> None:
        self._is_finished = True
        self._metrics.observe_finished(
            reason=reason,
            e2e_s=now_s() - self._start_s,
            num_prompt_tokens=self._num_prompt_tokens,
            num_sampled_tokens=self._num_sampled_tokens,
        )


class _EngineCounts(Collector):
    """Read from the engine's heartbeat when scraped; nothing is counted twice."""

    def __init__(
        self,
        model_name: str,
        status: Callable[[], wire.Status],
        is_healthy: Callable[[], bool],
    ) -> None:
        self._model_name = model_name
        self._status = status
        self._is_healthy = is_healthy

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        return iter(())

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        yield self._gauge("tokenlight_engine_up", "1 while /health is 200.", self._is_healthy())
        try:
            s = self._status()
        except EngineError:
            return  # no heartbeat yet: no numbers rather than zeros
        used = 1 - s.num_free_blocks / s.num_blocks
        gauges = {
            "vllm:num_requests_running": ("Requests in the running batch.", s.num_running),
            "vllm:num_requests_waiting": ("Requests that wait to run.", s.num_waiting),
            "vllm:kv_cache_usage_perc": ("Share of KV blocks in use, 0 to 1.", used),
            "tokenlight_kv_blocks": ("KV blocks of the pool.", s.num_blocks),
            "tokenlight_kv_blocks_free": ("KV blocks that a request can take.", s.num_free_blocks),
            "tokenlight_kv_blocks_cached": (
                "Free KV blocks whose contents can still serve a prefix.",
                s.num_cached_blocks,
            ),
        }
        counters = {
            "vllm:prompt_tokens": ("Prompt tokens of admitted requests.", s.num_prompt_tokens),
            "vllm:generation_tokens": ("Sampled tokens.", s.num_sampled_tokens),
            "vllm:prefix_cache_queries": ("Prompt tokens looked up.", s.num_prompt_tokens),
            "vllm:prefix_cache_hits": ("Prompt tokens found in the cache.", s.num_cached_tokens),
            "vllm:num_preemptions": ("Requests put back to wait.", s.num_preemptions),
            "tokenlight_steps": ("Forward passes.", s.num_steps),
        }
        for name, (text, value) in gauges.items():
            yield self._gauge(name, text, value)
        for name, (text, value) in counters.items():
            family = CounterMetricFamily(name, text, labels=("model_name",))
            family.add_metric((self._model_name,), value)
            yield family

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=("model_name",))
        family.add_metric((self._model_name,), value)
        return family
