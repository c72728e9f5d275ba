# SPDX-License-Identifier: Apache-2.0
"""What an op's `cases.py` is made of: inputs, the parts they can be cut into, their roofline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tokenlight.kernels.contract import Implementation, Op

Pick = Callable[[list[Tensor]], list[Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call. `num_bytes` and `num_flops` are the least it must move and compute."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-5
    num_bytes: int = 0
    num_flops: int = 0
    activations: tuple[int, ...] = ()
    """Which arguments have the dtype of activations, float32 here; see `in_dtype`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A call for some rows of another call: `of_part` and `of_whole` must pick the same bits."""

    case: Case
    of_part: Pick
    of_whole: Pick


def results(op: Op[..., Any], implementation: Implementation[..., Any], case: Case) -> list[Tensor]:
    """Run a case on copies of what it writes; what it returns and the written tensors."""
    args = [a.clone() if i in op.mutates else a for i, a in enumerate(case.args)]
    returned = implementation.run(*args, **case.kwargs)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    return [out for out in outputs if out is not None] + [args[i] for i in op.mutates]


def in_dtype(case: Case, dtype: torch.dtype) -> Case:
    """The case with 16-bit activations. Results may be rounded to a neighbour, twice on the way."""
    args = tuple(
        a.to(dtype) if i in case.activations and a is not None else a
        for i, a in enumerate(case.args)
    )
    step = 2 * torch.finfo(dtype).eps
    name = f"{case.name} in {str(dtype).removeprefix('torch.')}"
    return replace(case, name=name, args=args, rtol=max(case.rtol, step), atol=max(case.atol, step))


def generator(seed: int) -> torch.Generator:
    """Cases are random and always the same."""
    return torch.Generator().manual_seed(seed)


def rows_part(case: Case, rows: slice, *, row_args: tuple[int, ...]) -> Part:
    """Some rows of a call whose results, and arguments at `row_args`, have a row per token."""
    args = tuple(a[rows] if i in row_args else a for i, a in enumerate(case.args))
    return Part(
        case=Case(name=f"{case.name}[{rows.start}:{rows.stop}]", args=args, kwargs=case.kwargs),
        of_part=lambda outs: outs,
        of_whole=lambda outs: [out[rows] for out in outs],
    )


def row_slices(num_rows: int) -> list[slice]:
    """Cuts that a blocked kernel would get wrong: a row alone at each end, halves, odd chunks."""
    cuts = {(0, 1), (num_rows - 1, num_rows), (0, num_rows // 2), (num_rows // 2, num_rows)}
    cuts |= {(i, min(i + 7, num_rows)) for i in range(0, num_rows, 7)}
    return [slice(a, b) for a, b in sorted(cuts) if a < b]
