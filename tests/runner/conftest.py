# SPDX-License-Identifier: Apache-2.0
"""A plan as the control plane gives it, written by hand."""

from types import SimpleNamespace

import numpy as np
import pytest


def make_plan(requests: list[tuple[int, int, int, bool]]) -> SimpleNamespace:
    """Of (request id, slot, position, is sampled) with one token each."""
    ids, slots, positions, sampled = zip(*requests, strict=True)
    rows = np.flatnonzero(sampled).astype(np.int32)
    return SimpleNamespace(
        request_ids=np.array(ids, np.int64),
        slots=np.array(slots, np.int32),
        token_ids=np.arange(len(ids), dtype=np.int32),
        positions=np.array(positions, np.int32),
        query_starts=np.arange(len(ids) + 1, dtype=np.int32),
        kv_lens=np.array(positions, np.int32) + 1,
        block_table=np.zeros((4, 8), np.int32),
        sampled_rows=rows,
        sampled_requests=rows,
        num_tokens=len(ids),
        num_requests=len(ids),
        num_sampled=len(rows),
    )


@pytest.fixture
def plan_of():
    return make_plan
