# SPDX-License-Identifier: Apache-2.0
"""Every implementation of every op agrees with its reference. A new kernel needs no new test."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.kernels import triton_interpreter
from tokenlight.kernels import OPS, _cpu
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.case import Case, in_dtype, results
from tokenlight.kernels.contract import REFERENCE, Implementation, Op

pytestmark = pytest.mark.filterwarnings("ignore:.*[dD]eterministic:UserWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# What implementations are for; interpreted, those of a GPU run on the CPU's tensors.
TARGET = "cuda" if triton_interpreter.IS_ON else DEVICE

load_backends(TARGET)
if triton_interpreter.IS_ON:
    triton_interpreter.mend()


def cases_of(op: Op) -> ModuleType:
    return import_module(op.contract.__module__.replace(".contract", ".cases"))


def every_implementation() -> list:
    """The compiled CPU kernels once per instruction set that this machine runs."""
    return [
        pytest.param(op, implementation, isa, id=f"{op.name}-{implementation.backend}-{isa}")
        for op in OPS.values()
        for implementation in op.implementations
        if implementation.device in ("any", TARGET)
        if implementation.backend.startswith("triton") or not triton_interpreter.IS_ON
        for isa in (_cpu.features() if implementation.backend == "cpu" else ["any"])
    ]


def servable(op: Op, implementation: Implementation) -> list[Case]:
    able = [
        case
        for case in every_case(op, implementation.dtypes)
        if implementation.why_not(
            op.site(*case.args, **case.kwargs)._replace(device=TARGET), len(case.args[0])
        )
        is None
    ]
    assert able, f"no case of {op.name} reaches {implementation.backend}"
    return able


@cache
def every_case(op: Op, dtypes: frozenset[torch.dtype] | None) -> list[Case]:
    """The op's cases, again in each 16-bit type that is taken and holds their numbers."""
    made = [case for case in cases_of(op).cases("cpu") if DEVICE == "cpu" or has_file_layouts(case)]
    made = [case for case in made if triton_interpreter.CASE in case.name]
    short = sorted((dtypes or frozenset()) & {torch.float16, torch.bfloat16}, key=str)
    if triton_interpreter.IS_BRIEF:
        # Enough to see that a kernel runs; `ci-slow` has all of the intricate ones.
        small = [case for case in made if case.name.startswith("small")]
        made, short = [brief(op, c) for c in made[:: len(made) // 14 + 1]], short[:1]
        made += [case for case in small if all(case is not each for each in made)]
    in_short = [in_dtype(c, d) for c in made if c.activations for d in short]
    if triton_interpreter.IS_BRIEF:
        in_short = in_short[:: len(in_short) // 2 + 1]
        in_short += [in_dtype(c, d) for c in small for d in short]
    return [*made, *(case for case in in_short if is_finite(case))]


def has_file_layouts(case: Case) -> bool:
    """Whether no weight is in a layout that CPU kernels alone read."""
    formats = (case.kwargs.get("format"), case.kwargs.get("down_format"))
    return all(each is None or each.layout == "rows" for each in formats)


def run(op: Op, implementation: Implementation, case: Case) -> list[torch.Tensor]:
    """The results of a case whose tensors are moved to the device, strides and all, and back."""
    if DEVICE == "cpu":
        return results(op, implementation, case)
    moved = replace(case, args=tuple(on_device(a) for a in case.args))
    return [out.cpu() for out in results(op, implementation, moved)]


def on_device(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_contiguous() or value._base is None:
        return value.to(DEVICE)
    base = value._base.to(DEVICE)
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def brief(op: Op, case: Case) -> Case:
    """A few rows of a case; of a short one, all."""
    if len(case.args[0]) <= 8 or case.name.startswith("small"):
        return case
    part = cases_of(op).parts(case)[0].case
    like = {n: getattr(case, n) for n in ("name", "rtol", "atol", "activations")}
    return replace(part, **like)


def is_finite(case: Case) -> bool:
    given = [case.args[i] for i in case.activations]
    return all(bool(x.isfinite().all()) for x in given if x is not None)


@cache
def truth(op: Op, dtypes: frozenset[torch.dtype] | None, name: str) -> list[torch.Tensor]:
    """The reference's results of a case."""
    reference = next(i for i in op.implementations if i.rank == REFERENCE)
    (case,) = (c for c in every_case(op, dtypes) if c.name == name)
    return results(op, reference, case)


def disagreements(op: Op, implementation: Implementation) -> list[str]:
    found = []
    for case in servable(op, implementation):
        wanted = truth(op, implementation.dtypes, case.name)
        for got, want in zip(run(op, implementation, case), wanted, strict=True):
            try:
                torch.testing.assert_close(wide(got), wide(want), rtol=case.rtol, atol=case.atol)
            except AssertionError as difference:
                found.append(f"case {case.name!r}: {difference}")
    return found


def wide(x: torch.Tensor) -> torch.Tensor:
    """As float32, if torch compares its type by bits alone."""
    return x.float() if x.dtype is torch.float8_e4m3fn else x


def is_promised(op: Op, implementation: Implementation, case: Case) -> bool:
    """Whether rows of a call like this have bits of their own.

    Those of the tuned CUDA kernels have, up to the size from which on they leave a call to others;
    those of the prefill kernel from the size on that it takes.
    """
    if implementation.backend == "triton_prefill":
        return len(case.args[0]) >= 64 * len(case.args[6])
    if implementation.backend != "cuda":
        return True
    if op.name == "paged_attention":
        return len(case.args[0]) <= 8 * len(case.args[6])
    return op.name in ("rope_write_kv_", "sample") or len(case.args[0]) <= 16


def has_rows_to_compare(implementation: Implementation) -> bool:
    """A brief case is too short for a prefill."""
    is_prefill = implementation.backend == "triton_prefill"
    return implementation.backend != "reference" and not (
        is_prefill and triton_interpreter.IS_BRIEF
    )


def row_differences(op: Op, implementation: Implementation) -> tuple[int, list[str]]:
    """How many parts were compared, and which differ from the same rows of the whole call."""
    room = cases_of(op)
    checked, found = 0, []
    for case in servable(op, implementation)[: 2 if triton_interpreter.IS_BRIEF else None]:
        if not is_promised(op, implementation, case):
            continue
        whole = run(op, implementation, case)
        for part in room.parts(case):
            if not is_promised(op, implementation, part.case):
                continue
            got = part.of_part(run(op, implementation, part.case))
            for a, b in zip(got, part.of_whole(whole), strict=True):
                checked += 1
                if not torch.equal(bits(a), bits(b)):
                    found.append(part.case.name)
    return checked, found


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().flatten().view(torch.uint8)


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """What a kernel leaves out, or reads before it was written, is NaN."""
    # On a GPU a reference may use what has no deterministic form.
    torch.use_deterministic_algorithms(True, warn_only=DEVICE == "cuda")
    _cpu.poison_scratch(True)
    assert torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
    _cpu.poison_scratch(False)


@pytest.fixture
def on_isa() -> Iterator[Callable[[str], None]]:
    yield lambda isa: None if isa == "any" else _cpu.set_isa(isa)
    _cpu.set_isa(_cpu.features()[-1])


@pytest.mark.parametrize(("op", "implementation", "isa"), every_implementation())
def test_agrees_with_reference(op: Op, implementation: Implementation, isa: str, on_isa) -> None:
    on_isa(isa)
    found = disagreements(op, implementation)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("op", "implementation", "isa"),
    [p for p in every_implementation() if has_rows_to_compare(p.values[1])],
)
def test_rows_do_not_depend_on_each_other(
    op: Op, implementation: Implementation, isa: str, on_isa
) -> None:
    """A row's bits are the same however many rows share the call, and however they are chunked."""
    on_isa(isa)
    checked, found = row_differences(op, implementation)
    assert checked
    assert not found


def wrong(op_name: str, spoil: Callable[..., Any]) -> tuple[Op, Implementation]:
    """An implementation that runs the best kernel of the device and then spoils its result."""
    op = OPS[op_name]
    right = max((i for i in op.implementations if i.device == TARGET), key=lambda i: i.rank)

    def spoilt(*args: Any, **kwargs: Any) -> Any:
        return spoil(right.run(*args, **kwargs), *args)

    return op, replace(right, backend="wrong", run=spoilt)


def without_last_column(y: torch.Tensor, *_: Any) -> torch.Tensor:
    out = torch.empty_like(y)
    out[..., :-1] = y[..., :-1]
    return out


def with_unrotated_key(_: None, q: torch.Tensor, k: torch.Tensor, cos_sin: torch.Tensor) -> None:
    k[:, -1:] *= 1.01


def with_noise_of_batch(y: torch.Tensor, *_: Any) -> torch.Tensor:
    """Within tolerance, but a row depends on how many share the call."""
    return y * (1 + 2**-20 * (len(y) % 3))


@pytest.mark.parametrize(
    ("op_name", "spoil"),
    [
        ("rms_norm", lambda y, *_: y * 1.001),
        ("linear", without_last_column),
        ("paged_attention", lambda y, *_: y.roll(1, dims=1)),
        ("silu_mul", lambda y, *_: y.abs()),
        ("embedding", lambda y, *_: y.half().float()),
        ("sample", lambda ids, *_: torch.where(ids == 7, 8, ids).int()),
        ("rope_", with_unrotated_key),
        ("route", lambda out, *_: (out[0].flip(-1), out[1])),
        ("moe", lambda y, *_: y * 1.01),
        ("head_linear", lambda y, *_: y.roll(1, dims=1)),
        ("mla_attention", lambda y, *_: y.roll(1, dims=0)),
    ],
)
def test_a_wrong_kernel_is_caught(op_name: str, spoil: Callable[..., Any]) -> None:
    assert disagreements(*wrong(op_name, spoil))


@pytest.mark.parametrize("op_name", ["linear", "moe", "paged_attention", "rms_norm"])
def test_a_kernel_whose_rows_depend_on_each_other_is_caught(op_name: str) -> None:
    _, found = row_differences(*wrong(op_name, with_noise_of_batch))
    assert found
