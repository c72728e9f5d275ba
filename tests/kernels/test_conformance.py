# SPDX-License-Identifier: Apache-2.0
"""Every implementation of every op agrees with its reference. A new kernel needs no new test."""

from importlib import import_module

import pytest
import torch

from tokenlight.kernels import OPS
from tokenlight.kernels.case import Case, results
from tokenlight.kernels.contract import Implementation, Op

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def cases_of(op: Op) -> object:
    return import_module(op.contract.__module__.replace(".contract", ".cases"))


def every_implementation() -> list:
    return [
        pytest.param(op, implementation, id=f"{op.name}-{implementation.backend}")
        for op in OPS.values()
        for implementation in op.implementations
        if implementation.device in ("any", DEVICE)
    ]


def servable(op: Op, implementation: Implementation, all_cases: list[Case]) -> list[Case]:
    able = [c for c in all_cases if implementation.why_not(op.site(*c.args, **c.kwargs)) is None]
    assert able, f"no case of {op.name} reaches {implementation.backend}"
    return able


def disagreements(op: Op, implementation: Implementation) -> list[str]:
    reference = next(i for i in op.implementations if i.backend == "reference")
    found = []
    for case in servable(op, implementation, cases_of(op).cases(DEVICE)):
        pairs = zip(results(op, implementation, case), results(op, reference, case), strict=True)
        for got, want in pairs:
            try:
                torch.testing.assert_close(
                    got, want, rtol=case.rtol, atol=case.atol, equal_nan=bool(op.mutates)
                )
            except AssertionError as difference:
                found.append(f"case {case.name!r}: {difference}")
    return found


@pytest.fixture(autouse=True)
def poisoned_outputs():
    """torch.empty gives NaN (or the largest integer), so that what a kernel leaves out is seen."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("op", "implementation"), every_implementation())
def test_agrees_with_reference(op: Op, implementation: Implementation) -> None:
    found = disagreements(op, implementation)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("op", "implementation"), every_implementation())
def test_rows_do_not_depend_on_each_other(op: Op, implementation: Implementation) -> None:
    """A row's bits are the same however many rows share the call, and however they are chunked."""
    if implementation.backend == "reference":
        pytest.skip("references are exact enough, not row-invariant")
    room = cases_of(op)
    checked = 0
    for case in servable(op, implementation, room.cases(DEVICE)):
        whole = results(op, implementation, case)
        for part in room.parts(case):
            got = part.of_part(results(op, implementation, part.case))
            for a, b in zip(got, part.of_whole(whole), strict=True):
                assert torch.equal(a.view(torch.uint8), b.contiguous().view(torch.uint8)), (
                    f"{part.case.name} differs from the same rows of the whole call"
                )
                checked += 1
    assert checked
