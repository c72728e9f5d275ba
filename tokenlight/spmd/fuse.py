# SPDX-License-Identifier: Apache-2.0
"""A table of patterns over contracts, each applied where the target has a kernel for the whole.

What few rows are fused to may not be what many are: a graph is fused for a number of rows at most.

A pattern is asked about each node as the last one of what it looks for. Its call takes that node's
place, so nothing may read a result before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tokenlight import kernels
from tokenlight.kernels.comm import all_reduce, gather_shares
from tokenlight.kernels.contract import REFERENCE, Op
from tokenlight.spmd.target import Target


class Call(NamedTuple):
    """A call that is not in the graph yet."""

    op: Op[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


class Match(NamedTuple):
    """A call of the fused contract, and what becomes of the nodes that it stands for."""

    args: tuple[Any, ...]
    options: dict[str, Any]
    replaced: dict[Node, int | Node | None]
    """Node -> which of the call's results stands for it, or which other node; None: the call."""
    before: Call | None = None
    """What makes one more operand, the first."""


# `fx` types what a node is given too widely to be of use.
Pattern = Callable[[Any], Match | None]


def fuse(graph: Graph, target: Target) -> None:
    """Apply every pattern of the table to an inferred graph."""
    for fused, pattern in PATTERNS:
        for node in list(graph.nodes):
            match = pattern(node)
            if match is not None and _has_kernels(fused, match, target):
                _apply(graph, fused, node, match)


def _sum_add_rms_norm(node: Any) -> Match | None:
    """What is summed over ranks is normalised with its residual: the sum is left to the norm."""
    match = _add_rms_norm(node)
    if match is None or not _calls(branch := match.args[0], all_reduce) or len(branch.users) > 1:
        return None
    shares = Call(gather_shares, branch.args, dict(branch.kwargs))
    return Match(match.args[1:], match.options, {**match.replaced, branch: None}, shares)


def _add_rms_norm(node: Any) -> Match | None:
    if not _calls(node, kernels.rms_norm) or not _calls(total := node.args[0], kernels.add):
        return None
    if min(total.users) is not node:
        return None
    residual, branch = total.args
    replaced: dict[Node, int | Node | None] = {total: 1, node: 0}
    return Match((branch, residual, node.args[1]), dict(node.kwargs), replaced)


def _chain(first: Op[..., Any], second: Op[..., Any]) -> Pattern:
    """`second` of what `first` gives to nothing else: the operands of both, the options of both."""

    def pattern(node: Any) -> Match | None:
        if not _calls(node, second) or not _calls(before := node.args[0], first):
            return None
        if len(before.users) > 1:
            return None
        args = (*before.args, *node.args[1:])
        return Match(args, {**before.kwargs, **node.kwargs}, {before: None, node: None})

    return pattern


def _linear_add(node: Any) -> Match | None:
    if not _calls(node, kernels.add) or not _calls(product := node.args[1], kernels.linear):
        return None
    if len(product.users) > 1:
        return None
    args = (*product.args, node.args[0])
    return Match(args, dict(product.kwargs), {product: None, node: None})


def _rope_write_kv(node: Any) -> Match | None:
    if not _calls(node, kernels.write_kv_):
        return None
    k, v, k_cache, v_cache, *batch = node.args
    rope = min(k.users)
    if not _calls(rope, kernels.rope_) or rope.args[1] is not k or set(k.users) != {rope, node}:
        return None
    q, _, cos_sin = rope.args
    if any(user < node for user in q.users if user is not rope):
        return None
    gains, options = (None, None), dict[str, Any]()
    replaced: dict[Node, int | Node | None] = {rope: None, node: None}
    if _calls(q, kernels.rms_norm) and _calls(k, kernels.rms_norm) and q.kwargs == k.kwargs:
        raw_q, raw_k = q.args[0], k.args[0]
        if len(raw_q.users) > 1:
            return None
        gains, options = (q.args[1], k.args[1]), dict(q.kwargs)
        replaced |= {q: raw_q, k: raw_k}
        q, k = raw_q, raw_k
    return Match((q, k, v, cos_sin, k_cache, v_cache, *batch, *gains), options, replaced)


# Larger patterns first: what one has taken, the next does not see.
PATTERNS: tuple[tuple[Op[..., Any], Pattern], ...] = (
    (kernels.sum_add_rms_norm, _sum_add_rms_norm),
    (kernels.rope_write_kv_, _rope_write_kv),
    (kernels.linear_silu_mul, _chain(kernels.linear, kernels.silu_mul)),
    # Where a product takes its sum along, its norm goes to the next product.
    (kernels.linear_add, _linear_add),
    (kernels.norm_linear_silu_mul, _chain(kernels.rms_norm, kernels.linear_silu_mul)),
    (kernels.norm_linear, _chain(kernels.rms_norm, kernels.linear)),
    (kernels.add_rms_norm, _add_rms_norm),
)


def _calls(node: Any, op: Op[..., Any]) -> bool:
    return isinstance(node, Node) and node.target is op


def _has_kernels(fused: Op[..., Any], match: Match, target: Target) -> bool:
    """Whether the whole has a kernel, and what comes before it can be had."""
    values = _values(match.args)
    if match.before is not None:
        op, args, options = match.before
        if target.find(op, _values(args), options) is None:
            return False
        values = (op.infer(*_values(args), **options), *values)
    found = target.find(fused, values, match.options)
    return found is not None and found.rank > REFERENCE


def _apply(graph: Graph, fused: Op[..., Any], last: Node, match: Match) -> None:
    picked = {stands: old for old, stands in match.replaced.items() if isinstance(stands, int)}
    told = {key: last.meta.get(key) for key in ("line", "path")}
    with graph.inserting_before(last):
        args = match.args
        if match.before is not None:
            op, operands, options = match.before
            first = graph.call_function(op, operands, options)
            first.meta |= {**told, "value": op.infer(*_values(operands), **options)}
            args = (first, *args)
        call = graph.call_function(fused, args, match.options)
        # Later patterns ask what this gives.
        call.meta |= {
            **told,
            "value": tuple(picked[i].meta["value"] for i in range(len(picked)))
            if picked
            else last.meta["value"],
        }
        for old, stands in match.replaced.items():
            if isinstance(stands, int):
                stands = graph.call_function(operator.getitem, (call, stands))
                stands.meta["value"] = old.meta["value"]
            old.replace_all_uses_with(stands or call)
    for old in sorted(match.replaced, reverse=True):
        graph.erase_node(old)


def _values(args: tuple[Any, ...]) -> tuple[Any, ...]:
    values: tuple[Any, ...] = map_arg(args, lambda n: n.meta["value"])
    return values
