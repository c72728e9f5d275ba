# SPDX-License-Identifier: Apache-2.0
"""Servers for the whole-slice tests: real processes, real HTTP, the default model or a tiny one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import Server, serve

SMALL_KV_BYTES = 24 << 20
"""About 1,000 tokens of the default model's KV: 32 streams do not fit, some are preempted."""


@pytest.fixture(scope="module")
def server(default_model_path: Path) -> Iterator[Server]:
    """The default model with default settings."""
    with serve(str(default_model_path)) as running:
        yield running


@pytest.fixture(scope="module")
def crowded_server(default_model_path: Path) -> Iterator[Server]:
    """The default model with so little KV memory that concurrent requests preempt each other."""
    with serve(
        str(default_model_path), "--kv-cache-memory-bytes", str(SMALL_KV_BYTES)
    ) as running:  # fmt: skip
        yield running
