# SPDX-License-Identifier: Apache-2.0
"""Every implementation of every op agrees with its reference. A new kernel needs no new test."""

import inspect
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


def disagreements(op: Op, implementation: Implementation) -> Iterator[str]:
    for case in servable(op, implementation):
        wanted = truth(op, implementation.dtypes, case.name)
        for got, want in zip(run(op, implementation, case), wanted, strict=True):
            try:
                torch.testing.assert_close(wide(got), wide(want), rtol=case.rtol, atol=case.atol)
            except AssertionError as difference:
                yield f"case {case.name!r}: {difference}"


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
    """A brief case is too short for a prefill; another's kernel may promise nothing."""
    if implementation.backend == "triton_prefill":
        return not triton_interpreter.IS_BRIEF
    if implementation.backend == "cuda":
        return True
    return implementation.backend != "reference" and implementation.is_row_invariant


def compared_parts(op: Op, implementation: Implementation) -> Iterator[tuple[str, bool]]:
    """Parts, and whether each has the bits of the same rows of the whole call."""
    room = cases_of(op)
    for case in servable(op, implementation)[: 2 if triton_interpreter.IS_BRIEF else None]:
        if not is_promised(op, implementation, case):
            continue
        whole = run(op, implementation, case)
        for part in room.parts(case):
            if not is_promised(op, implementation, part.case):
                continue
            got = part.of_part(run(op, implementation, part.case))
            for a, b in zip(got, part.of_whole(whole), strict=True):
                yield part.case.name, torch.equal(bits(a), bits(b))


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
    found = list(disagreements(op, implementation))
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
    compared = list(compared_parts(op, implementation))
    assert compared
    assert not [name for name, is_same in compared if not is_same]


def test_what_is_registered_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is to be done for a new kernel."""
    op = OPS["scale"]
    new = replace(op.implementations[-1], backend="new", device="any")
    monkeypatch.setattr(op, "implementations", [*op.implementations, new])
    found = [p.values[1] for p in every_implementation() if p.values[0] is op]
    assert (new in found) == (not triton_interpreter.IS_ON)


# Of one result, and how many numbers the call was given.
Spoil = Callable[[torch.Tensor, int], object]


def spoilt(op: Op, spoil: Spoil, output: int) -> Implementation:
    """The best kernel of the device, one of whose results is spoilt: by what the call had."""
    able = [i for i in op.implementations if i.device in ("any", TARGET)]
    right = max(able, key=lambda i: i.rank)

    def run(*args: Any, **kwargs: Any) -> Any:
        returned = right.run(*args, **kwargs)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        written = [out for out in outputs if out is not None] + [args[i] for i in op.mutates]
        if written[output].numel():
            num_elements = sum(a.numel() for a in args if isinstance(a, torch.Tensor))
            spoil(written[output], num_elements)
        return returned

    return replace(right, run=run)


def every_output() -> list:
    """What each op gives, returned and written in place: (op, its place among them)."""
    return [
        pytest.param(op, output, id=f"{op.name}-{output}")
        for op in OPS.values()
        for output in range(num_outputs(op))
    ]


def num_outputs(op: Op) -> int:
    returned = inspect.signature(op.contract).return_annotation
    return str(returned).count("Tensor") + len(op.mutates)


def with_a_wrong_number(out: torch.Tensor, _: int) -> None:
    last = (-1,) * out.dim()
    out[last] = 0 if abs(float(out[last])) > 1 else 4


def with_a_number_left_out(out: torch.Tensor, _: int) -> None:
    """As a kernel whose grid ends too early leaves it: whatever the memory held."""
    out[(-1,) * out.dim()] = torch.empty_like(out)[(-1,) * out.dim()]


def with_noise_of_batch(out: torch.Tensor, num_elements: int) -> None:
    """Results that depend on how many rows share the call."""
    part = num_elements % 97
    out.copy_(out.float() * (1 + part / 64) + part)


@pytest.mark.parametrize("spoil", [with_a_wrong_number, with_a_number_left_out])
@pytest.mark.parametrize(("op", "output"), every_output())
def test_one_wrong_number_of_any_op_is_caught(op: Op, output: int, spoil: Spoil) -> None:
    assert any(True for _ in disagreements(op, spoilt(op, spoil, output)))


@pytest.mark.parametrize(("op", "output"), every_output())
def test_rows_of_any_op_that_depend_on_each_other_are_caught(op: Op, output: int) -> None:
    compared = compared_parts(op, spoilt(op, with_noise_of_batch, output))
    assert any(not is_same for _, is_same in compared)


@pytest.mark.parametrize(
    ("op_name", "spoil"),
    [
        ("rms_norm", lambda y, _: y.mul_(1.001)),
        ("linear", lambda y, _: y.mul_(1.01)),
        ("paged_attention", lambda y, _: y.copy_(y.roll(1, dims=1))),
        ("silu_mul", lambda y, _: y.abs_()),
        ("embedding", lambda y, _: y.copy_(y.half())),
        ("sample", lambda ids, _: ids.masked_fill_(ids == 7, 8)),
        ("rope_", lambda q, _: q[:, -1:].mul_(1.01)),
        ("route", lambda ids, _: ids.copy_(ids.flip(-1))),
        ("moe", lambda y, _: y.mul_(1.01)),
        ("head_linear", lambda y, _: y.copy_(y.roll(1, dims=1))),
        ("mla_attention", lambda y, _: y.copy_(y.roll(1, dims=0))),
    ],
)
def test_a_wrong_kernel_is_caught(op_name: str, spoil: Spoil) -> None:
    op = OPS[op_name]
    assert any(True for _ in disagreements(op, spoilt(op, spoil, 0)))
