# SPDX-License-Identifier: Apache-2.0
"""For how many rows a method is compiled: for all that there may be, and again for few.

What is better for few rows says up to how many (`max_rows`). Each such number makes a bucket: a
program with kernels, fusions and a memory plan of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.fx import Graph, Node

from tokenlight.kernels.comm import all_reduce
from tokenlight.kernels.contract import Op
from tokenlight.spmd.fuse import PATTERNS
from tokenlight.spmd.rows import Limits, Rows, rows_of
from tokenlight.spmd.target import Target


def find_buckets(graph: Graph, target: Target) -> list[Limits]:
    """The limits of each bucket of an inferred graph, rising; the last are the target's."""
    calls = [node for node in graph.nodes if isinstance(node.target, Op)]
    counted = {rows_of(result).of for call in calls for result in _results(call)}
    most = min((Rows(of).most(target.limits) for of in counted), default=0)
    bounds = {*_bounds(calls, target)}
    few = sorted(count for count in bounds if 0 < count < most)
    return [*(target.limits._replace(**dict.fromkeys(counted, n)) for n in few), target.limits]


def _bounds(calls: list[Node], target: Target) -> Iterator[int]:
    """Of all that may be called: what is in the graph, and what may be fused to."""
    called = {call.target for call in calls if isinstance(call.target, Op)}
    for op in called | {fused for fused, _ in PATTERNS}:
        for implementation in op.implementations:
            if implementation.device in ("any", target.device.type):
                yield implementation.max_rows or 0
    for call in calls:
        if call.target is all_reduce:
            yield target.max_gathered_rows(_results(call)[0])


def _results(call: Node) -> tuple[Tensor, ...]:
    value: Any = call.meta["value"]
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
