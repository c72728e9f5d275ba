# SPDX-License-Identifier: Apache-2.0
"""Every row of the rules is true of its op's reference. A new row needs no new test.

A case of the op is cut as the row says, each rank runs its part, and what they give is put together
as the row says: it must be what the whole call gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tokenlight import kernels
from tokenlight.kernels.case import Case, results
from tokenlight.kernels.contract import REFERENCE, Op
from tokenlight.spmd.placement import PARTIAL, REPLICATE, Placement, Shard
from tokenlight.spmd.rules import RULES, Row

# Operands, by op, whose rows are gates and then ups: a rank has some of both.
PAIRS = {
    kernels.silu_mul: (0,),
    kernels.gelu_tanh_mul: (0,),
    kernels.moe: (3, 5),
}
# Options that count from where a rank's part begins, and by which operand's length.
FIRST = {kernels.embedding_slice: ("first_row", 1), kernels.moe: ("first_expert", 3)}
# Not shown here but by models on ranks: a batch is not cut into equal parts of its arrays, rows are
# picked among a rank's own, and of a fused layer's parts each is split, not all of them together.
SHOWN_BY_MODELS = {
    (kernels.paged_attention, Shard(0)),
    (kernels.mla_attention, Shard(0)),
    (kernels.write_kv_, Shard(0)),
    (kernels.write_latent_, Shard(0)),
    (kernels.gather_rows, Shard(0)),
    (kernels.concat_columns, Shard(1)),
}
ROWS = [
    pytest.param(op, row, id=f"{op.name} {' '.join(map(str, row.operands))} -> {row.result}")
    for op, rows in RULES.items()
    for row in rows
    if (op, row.operands[0]) not in SHOWN_BY_MODELS
]


def cases_of(op: Op) -> list[Case]:
    """Those of dense weights: a part of a packed one is packed anew."""
    room = import_module(op.contract.__module__.replace(".contract", ".cases"))
    made = [case for case in room.cases("cpu") if is_dense(case)]
    if op is kernels.embedding_slice:  # of an even number of rows
        made = [replace(c, args=(c.args[0], c.args[1][:36])) for c in made]
    return made


def is_dense(case: Case) -> bool:
    formats = [case.kwargs.get(name) for name in ("format", "down_format")]
    return all(f is None or f.name == "f32" for f in formats)


def placements(row: Row, case: Case) -> list[Placement]:
    """What each operand of the case is; of caches, what the first operand's heads are."""
    found = []
    for want, arg in zip(row.wanted(len(case.args)), case.args, strict=True):
        if want is not None:
            found.append(want)
            continue
        has_heads = isinstance(arg, Tensor) and arg.shape[1] > 1
        found.append(row.operands[0] if has_heads else REPLICATE)
    return found


def num_ranks(op: Op, row: Row, case: Case) -> int | None:
    """A number that cuts every operand evenly."""
    first = case.args[0]
    if row.num_dims not in (0, first.dim()):
        return None
    for count in (2, 3, 4):
        if all(
            not isinstance(p, Shard)
            or (p.dim < arg.dim() and arg.shape[p.dim] % (count * factor(op, index, p)) == 0)
            for index, (arg, p) in enumerate(zip(case.args, placements(row, case), strict=True))
            if isinstance(arg, Tensor)
        ):
            return count
    return None


def factor(op: Op, index: int, placement: Shard) -> int:
    return 2 if placement.dim == 1 and index in PAIRS.get(op, ()) else 1


def part(op: Op, row: Row, case: Case, rank: int, count: int) -> Case:
    """What one rank is given."""
    args = []
    for index, (arg, placement) in enumerate(zip(case.args, placements(row, case), strict=True)):
        if not isinstance(arg, Tensor):
            args.append(arg)
        elif placement == PARTIAL:
            weights = torch.arange(1.0, count + 1)
            args.append(arg * weights[rank] / weights.sum())
        elif isinstance(placement, Shard):
            runs = arg.chunk(factor(op, index, placement), placement.dim)
            cut = [run.chunk(count, placement.dim)[rank] for run in runs]
            args.append(torch.cat(cut, placement.dim))
        else:
            args.append(arg)
    options = dict(case.kwargs)
    if op in FIRST and placements(row, case)[FIRST[op][1]] == Shard(0):
        name, index = FIRST[op]
        options[name] = options.get(name, 0) + rank * args[index].shape[0]
    return replace(case, args=tuple(args), kwargs=options)


def joined(parts: list[Tensor], placement: Placement) -> Tensor:
    if placement == PARTIAL:
        return torch.stack(parts).sum(0)
    return torch.cat(parts, placement.dim) if isinstance(placement, Shard) else parts[0]


def checks(op: Op, row: Row) -> Iterator[tuple[Case, list[Tensor], list[Tensor]]]:
    reference = next(i for i in op.implementations if i.rank == REFERENCE)
    for case in cases_of(op):
        if (count := num_ranks(op, row, case)) is None or 0 in case.args[0].shape:
            continue
        here = placements(row, case)
        ranks = [results(op, reference, part(op, row, case, rank, count)) for rank in range(count)]
        num_returned = len(ranks[0]) - len(op.mutates)
        layouts = [row.result] * num_returned + [here[index] for index in op.mutates]
        together = [joined([rank[i] for rank in ranks], layout) for i, layout in enumerate(layouts)]
        yield case, together, results(op, reference, case)


@pytest.mark.parametrize(("op", "row"), ROWS)
def test_ranks_together_give_the_whole(op: Op, row: Row) -> None:
    checked = 0
    for case, together, whole in checks(op, row):
        for ours, theirs in zip(together, whole, strict=True):
            assert_close(ours.float(), theirs.float(), rtol=1e-4, atol=3e-4, msg=case.name)
        checked += 1
    assert checked, "no case can be cut like this"


@pytest.mark.parametrize(
    ("op", "row"),
    [
        (kernels.silu_mul, Row((PARTIAL,), PARTIAL)),
        (kernels.rms_norm, Row((Shard(1), Shard(0)), Shard(1))),
        (kernels.linear, Row((REPLICATE, Shard(0), Shard(0)), REPLICATE)),
        (kernels.linear, Row((PARTIAL, REPLICATE, REPLICATE), PARTIAL)),
    ],
    ids=["silu of sums", "norm of parts", "columns", "bias added by each"],
)
def test_a_false_row_is_found(op: Op, row: Row) -> None:
    differences = []
    for _, together, whole in checks(op, row):
        for ours, theirs in zip(together, whole, strict=True):
            same = ours.shape == theirs.shape and torch.allclose(ours, theirs, 1e-4, 1e-4)
            differences.append(not same)
    assert any(differences)


def test_every_op_that_models_call_has_rules() -> None:
    """Fused ones come after collectives, and sampling is no part of a model."""
    outside = {kernels.sample, kernels.add_rms_norm, kernels.linear_silu_mul}
    outside |= {kernels.rope_write_kv_}
    assert {op for op in kernels.OPS.values() if op not in outside} >= set(RULES)
