# SPDX-License-Identifier: Apache-2.0
"""What is better for few rows is in a program for few rows, and changes no bit."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.spmd.ranks import FakeWorld
from tests.spmd.test_random_graphs import DIM, F32, Rows, Whole, fill, gated
from tokenlight import kernels
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.ops.rms_norm.reference import reference
from tokenlight.nn import RMSNorm, TensorModule
from tokenlight.spmd import (
    PROBE_ROWS,
    Limits,
    Mesh,
    NativeProgram,
    Program,
    Ranks,
    Widths,
    build_chain,
    compile_method,
    pieces,
    weight_layouts,
)
from tokenlight.weights import fill_without_numbers

CPU = torch.device("cpu")
LIMITS = Limits(T=64, S=8)
FEW = 4
TP2 = Mesh.of(Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2))


class Step:
    """A step of nothing but rows."""

    num_sampled = 1

    def __init__(self, x_TD: Tensor) -> None:
        self.x_TD = x_TD

    @property
    def num_tokens(self) -> int:
        return self.x_TD.shape[0]


def rows(count: int) -> Step:
    return Step(torch.randn(count, DIM, generator=torch.Generator().manual_seed(count)))


class Norms(TensorModule):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(DIM, eps=1e-5)
        self.norm.weight_D = torch.rand(DIM)

    def forward(self, step: Step) -> Tensor:
        return self.norm(step.x_TD) * 2.0


def compiled(limits: Limits = LIMITS) -> Program:
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    return compile_method(Norms(), "forward", probe, device=CPU, limits=limits)


@pytest.fixture
def few_rows() -> Iterator[list[int]]:
    """A kernel for few rows; it notes how many it is called with."""
    seen: list[int] = []

    @kernels.rms_norm.implement("few", device="cpu", rank=TUNED + 1, max_rows=FEW)
    def few(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
        seen.append(x_TD.shape[0])
        return reference(x_TD, weight_D, eps=eps)

    yield seen
    kernels.rms_norm.withdraw("few")


def backends(program: Program) -> list[str]:
    return [i.implementation.backend for i in program.instructions if i.op is kernels.rms_norm]


def test_one_program_where_nothing_is_for_few_rows() -> None:
    assert compiled().few is None


def test_a_program_of_its_own_for_as_many_rows_as_the_kernel_takes(few_rows: list[int]) -> None:
    program = compiled()
    assert (backends(program), program.limits) == (["cpu"], LIMITS)
    assert program.few is not None
    assert (backends(program.few), program.few.limits) == (["few"], LIMITS._replace(T=FEW))
    assert program.few.few is None
    assert program.few.arena_bytes * LIMITS.T == program.arena_bytes * FEW
    chosen = [program.at(rows(count)) for count in (1, FEW, FEW + 1, LIMITS.T)]
    assert chosen == [program.few, program.few, program, program]


def test_no_program_for_fewer_rows_than_there_are(few_rows: list[int]) -> None:
    program = compiled(Limits(T=FEW, S=1))
    assert (backends(program), program.few) == (["few"], None)


def test_native_programs_are_picked_by_rows_and_share_memory(few_rows: list[int]) -> None:
    program = compiled()
    native = NativeProgram(program)
    for count in (FEW, 1, LIMITS.T, FEW + 1, 2):
        step = rows(count)
        torch.testing.assert_close(native.run(step), program.run(step))
    assert few_rows == [FEW, 1, 2]
    with pytest.raises(ValueError, match="65 tokens"):
        native.run(rows(LIMITS.T + 1))


def test_outside_of_steps_it_is_not_called(few_rows: list[int]) -> None:
    """A call by itself is bound once, for whatever comes."""
    kernels.rms_norm(rows(1).x_TD, torch.ones(DIM), eps=1e-5)
    assert few_rows == []


class Block(TensorModule):
    """Two branches onto a residual, each normalised: as in every model's layer."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mlp, self.rows, self.columns = gated(mesh), Rows(mesh), Whole(mesh)
        self.first, self.second = RMSNorm(DIM, eps=1e-5), RMSNorm(DIM, eps=1e-5)

    def forward(self, step: Step) -> Tensor:
        x_TD = step.x_TD + self.mlp(step.x_TD)
        x_TD = x_TD + self.mlp(self.first(x_TD))
        return self.columns(self.second(x_TD)) + x_TD


def rank_of(mesh: Mesh, world: FakeWorld, rank: int) -> Program:
    mesh = mesh.at(rank)
    chain = build_chain(Block, mesh)
    held = pieces(chain, mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    model = Block(mesh)
    fill(model, held)
    ranks = Ranks(mesh, weight_layouts(chain), world.rank(rank))
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    return compile_method(model, "forward", probe, device=CPU, limits=LIMITS, ranks=ranks)


def ops(program: Program) -> list[str]:
    names = [i.op.name for i in program.instructions]
    return [n for n in names if "reduce" in n or "norm" in n or n in ("gather_shares", "add")]


GATHERED_BYTES = 4 * DIM * FEW  # of FEW rows
FUSED = ["gather_shares", "sum_add_rms_norm"]


@pytest.fixture(scope="module")
def block() -> tuple[FakeWorld, list[Program]]:
    world = FakeWorld(2, max_gathered_bytes=GATHERED_BYTES)
    return world, [rank_of(TP2, world, rank) for rank in range(2)]


def test_a_sum_of_few_rows_is_left_to_the_norm_behind_it(
    block: tuple[FakeWorld, list[Program]],
) -> None:
    _, programs = block
    for program in programs:
        assert program.few is not None
        assert program.few.limits == LIMITS._replace(T=FEW)
        assert ops(program.few) == [*FUSED * 2, "rms_norm", "add"]
        assert ops(program) == [*["all_reduce", "add_rms_norm"] * 2, "rms_norm", "add"]


def test_gathered_or_reduced_a_row_has_the_same_bits(
    block: tuple[FakeWorld, list[Program]],
) -> None:
    world, programs = block
    natives = [NativeProgram(program) for program in programs]
    for count in range(1, FEW + 1):
        step = rows(count)
        many = world.run(lambda rank, step=step: programs[rank].run(step))
        few = world.run(lambda rank, step=step: programs[rank].at(step).run(step))
        native = world.run(lambda rank, step=step: natives[rank].run(step))
        for ours in (*few, *native):
            assert torch.equal(ours, many[0])
        assert world.calls == [[("all_reduce", (0, 1), step.x_TD.nbytes)] * 2] * 2


def test_without_any_share_it_is_another_result(block: tuple[FakeWorld, list[Program]]) -> None:
    world, programs = block
    step = rows(FEW)
    want = world.run(lambda rank: programs[rank].run(step))[0]
    for skipped in range(2):
        world.skipped = skipped
        got = world.run(lambda rank: programs[rank].at(step).run(step))[0]
        assert float((got - want).abs().max()) > 1e-3
    world.skipped = None


def test_no_share_is_gathered_where_the_communicator_would_rather_reduce() -> None:
    world = FakeWorld(2, max_gathered_bytes=0)
    assert rank_of(TP2, world, 0).few is None


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_everywhere_the_native_program_adds_in_rank_order(num_ranks: int) -> None:
    """Many shares: each is added to what is there already."""
    widths = Widths(num_ranks=num_ranks, attn_tp=num_ranks, dense_tp=num_ranks, moe_tp=num_ranks)
    mesh = Mesh.of(widths)
    world = FakeWorld(num_ranks, max_gathered_bytes=GATHERED_BYTES)
    programs = [rank_of(mesh, world, rank) for rank in range(num_ranks)]
    natives = [NativeProgram(program) for program in programs]
    step = rows(3)
    want = world.run(lambda rank: programs[rank].run(step))
    for ours in world.run(lambda rank: natives[rank].run(step)):
        assert torch.equal(ours, want[0])
    left = [name.split()[0] for name in natives[0].in_python(step)]
    assert left == ["gather_shares"] * 2
