# SPDX-License-Identifier: Apache-2.0
"""Where ranks have other tokens and other experts: a token is sent to its experts' ranks alone."""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, Node

from tokenlight import kernels
from tokenlight.kernels.comm import all_gather, gather_routed, reduce_scatter, scatter_routed
from tokenlight.spmd.infer import infer_node
from tokenlight.spmd.mesh import Mesh
from tokenlight.spmd.moves import LATENCY_BYTES
from tokenlight.spmd.rows import PROBE_ROWS

_ROUTE_BYTES = 8  # an expert's number and its weight
_ELEMENT_BYTES = 2


def can_dispatch(mesh: Mesh, *, has_shared: bool) -> bool:
    """Whether the ranks with other tokens are those with other experts.

    Where every token sees a layer beside its experts, ranks with other tokens may not share that.
    """
    dp, ep, dense_tp = (mesh.roles[role] for role in ("dp", "ep", "dense_tp"))
    return bool(dp) and dp == ep and not (has_shared and set(dense_tp) & set(dp))


def dispatch_pays(num_ranks: int, dim: int, per_token: int) -> bool:
    """Whether less is sent so than by gathering all tokens and scattering all sums.

    Args:
        num_ranks: with other experts.
        dim: elements of a token.
        per_token: experts that each is routed to, as likely here as there.
    """
    token_bytes = dim * _ELEMENT_BYTES
    spared = 2 * token_bytes * (num_ranks - 1 - routed_ranks(num_ranks, per_token))
    added = (num_ranks - 1) * _ROUTE_BYTES * per_token
    return PROBE_ROWS["T"] * (spared - added) > LATENCY_BYTES


def routed_ranks(num_ranks: int, per_token: int) -> float:
    """How many other ranks a token is sent to, where every expert is as likely."""
    return (num_ranks - 1) * (1 - (1 - 1 / num_ranks) ** per_token)


def routed_bytes(op: Any, x: Tensor, experts: Tensor, num_ranks: int) -> float:
    """What a rank sends for its tokens in one of the two calls.

    Args:
        op: which.
        x: its first operand: this rank's tokens, or the sums of all.
        experts: its second.
        num_ranks: of the group.
    """
    per_token = experts.shape[1]
    row_bytes = x.nbytes / x.shape[0]
    num_tokens = x.shape[0] if op is gather_routed else x.shape[0] / num_ranks
    routes = (num_ranks - 1) * _ROUTE_BYTES * per_token if op is gather_routed else 0
    return num_tokens * (routes + row_bytes * routed_ranks(num_ranks, per_token))


def dispatch(graph: Graph, module: nn.Module, probe: Any) -> None:
    """Replace what gathers tokens, choices and weights for experts, and what scatters their sums.

    Args:
        graph: placed.
        module: as in `place`.
        probe: likewise.
    """
    for node in list(graph.nodes):
        if node.target is kernels.moe and (group := _group_of(node)) is not None:
            _apply(graph, node, group, module, probe)


def _group_of(node: Node) -> Any:
    """Between whose ranks; None: its operands come in another way, or its sums go in another."""
    operands, readers = node.args[:3], list(node.users)
    if len(readers) != 1:
        return None
    moves = [_move(each, all_gather) for each in operands]
    moves.append(_move(readers[0], reduce_scatter))
    return moves[0] if all(each == moves[0] for each in moves) else None


def _move(node: Any, op: Any) -> Any:
    if not isinstance(node, Node) or node.target is not op or node.kwargs["dim"] != 0:
        return None
    return node.kwargs["group"]


def _apply(graph: Graph, node: Node, group: Any, module: nn.Module, probe: Any) -> None:
    gathers: list[Any] = list(node.args[:3])
    (scatter,) = node.users
    weight: Any = node.args[3]
    options = {"group": group, "num_experts": weight.meta["value"].shape[0]}
    with graph.inserting_before(node):
        routed = graph.call_function(gather_routed, tuple(g.args[0] for g in gathers), options)
        _note(routed, like=gathers[0], module=module, probe=probe)
        picks = [graph.call_function(operator.getitem, (routed, i)) for i in range(3)]
        for pick in picks:
            _note(pick, like=gathers[0], module=module, probe=probe)
    node.args = (*picks, *node.args[3:])
    with graph.inserting_before(scatter):
        spread = graph.call_function(scatter_routed, (node, picks[1]), options)
        _note(spread, like=scatter, module=module, probe=probe)
    scatter.replace_all_uses_with(spread)
    graph.erase_node(scatter)
    for gather in gathers:
        if not gather.users:
            graph.erase_node(gather)


def _note(node: Node, *, like: Node, module: nn.Module, probe: Any) -> None:
    node.meta |= {key: like.meta.get(key) for key in ("line", "path", "layout")}
    node.meta["value"] = infer_node(node, module, probe)
