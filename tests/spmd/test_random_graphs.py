# SPDX-License-Identifier: Apache-2.0
"""Random module graphs on random meshes give what one device gives, with no collective too many."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.spmd.ranks import FakeWorld
from tokenlight import kernels
from tokenlight.nn import FusedLinear, GatedMLP, Linear, RMSNorm, TensorModule
from tokenlight.spmd import (
    PARTIAL,
    PROBE_ROWS,
    REPLICATE,
    Limits,
    Mesh,
    Program,
    Ranks,
    Shard,
    Widths,
    build_chain,
    compile_method,
    pieces,
    placed,
    weight_layouts,
)
from tokenlight.weights import Pieces, StoredTensor, Target, fill_without_numbers, slots_of

DIM, TOKENS = 16, 3
F32 = kernels.FORMATS["f32"]
LIMITS = Limits(T=TOKENS, S=1)
MESHES = {
    "tp2": Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2),
    "tp4": Widths(num_ranks=4, attn_tp=4, dense_tp=4, moe_tp=4),
    "tp2 dp2": Widths(num_ranks=4, attn_tp=2, dense_tp=4, moe_tp=4),
    "tp2 dp2, dense tp2": Widths(num_ranks=4, attn_tp=2, dense_tp=2, moe_tp=4),
}


class Columns(TensorModule):
    """Each rank has some of the out features."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.proj = FusedLinear(DIM, (mesh.split("attn_tp", DIM, "features"),), bias=True)

    @placed("attn_tp", x_TD=REPLICATE, returns=Shard(1))
    def forward(self, x_TD: Tensor) -> Tensor:
        return self.proj(x_TD)


class Rows(TensorModule):
    """Each rank has some of the in features."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.proj = Linear(mesh.split("attn_tp", DIM, "features"), DIM, bias=True)

    @placed("attn_tp", x_TD=Shard(1), returns=PARTIAL)
    def forward(self, x_TD: Tensor) -> Tensor:
        return self.proj(x_TD)


class Whole(TensorModule):
    """The same on all ranks; takes whatever tokens it is given."""

    def __init__(self, _: Mesh) -> None:
        super().__init__()
        self.norm, self.proj = RMSNorm(DIM, eps=1e-5), Linear(DIM, DIM)

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.proj(self.norm(x_TD)) * 0.5


def gated(mesh: Mesh) -> GatedMLP:
    return GatedMLP(DIM, mesh.split("dense_tp", 2 * DIM, "features"), bias=True)


class Graph(TensorModule):
    """Modules on random earlier values; sums of random pairs; nothing is left unused."""

    def __init__(self, mesh: Mesh, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.plan: list[tuple[int, ...]] = []
        self.parts = nn.ModuleList()
        for place in range(1, 8):
            if place > 1 and rng.random() < 0.3:
                self.plan.append((rng.randrange(place), rng.randrange(place)))
                self.parts.append(nn.Identity())
            else:
                self.plan.append((rng.randrange(max(0, place - 3), place),))
                self.parts.append(rng.choice([Columns, Rows, Whole, gated])(mesh))

    def forward(self, step: SimpleNamespace) -> Tensor:
        values = [step.x_TD]
        for sources, part in zip(self.plan, self.parts, strict=True):
            first = values[sources[0]]
            values.append(first + values[sources[1]] if len(sources) > 1 else part(first))
        used = {source for sources in self.plan for source in sources}
        unused = [value for place, value in enumerate(values) if place not in used]
        total = unused[0]
        for value in unused[1:]:
            total = total + value
        return total


def fill(model: nn.Module, held: Pieces) -> None:
    """Numbers that depend on the tensor's name alone; a rank keeps its pieces."""
    for name, slot in slots_of(model).items():
        parts = []
        for part, piece in enumerate(held[name]):
            g = torch.Generator().manual_seed(zlib.crc32(f"{name}/{part}".encode()))
            numbers = torch.randn(piece.whole, generator=g) / piece.whole[-1] ** 0.5
            rows = numbers.view(torch.uint8).view(-1, 4 * piece.whole[-1])
            stored = StoredTensor(
                name=name, shape=piece.whole, format=F32, layout="huggingface", rows=rows
            )
            parts.append(piece.of(stored))
        slot.fill(parts, Target(torch.device("cpu"), torch.float32))


def compile_rank(mesh: Mesh, seed: int, world: FakeWorld) -> Program:
    chain = build_chain(lambda mesh: Graph(mesh, seed), mesh)
    held = pieces(chain, mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    model = Graph(mesh, seed)
    fill(model, held)
    ranks = Ranks(mesh, weight_layouts(chain), world.rank(mesh.rank))
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    cpu = torch.device("cpu")
    return compile_method(model, "forward", probe, device=cpu, limits=LIMITS, ranks=ranks)


def inputs(mesh: Mesh) -> list[Tensor]:
    """Each rank's tokens: ranks of different data-parallel index have different ones."""
    g = torch.Generator().manual_seed(1)
    groups = torch.randn(mesh.num_ranks, TOKENS, DIM, generator=g)
    tp = mesh.size(mesh.roles["attn_tp"])
    return [groups[rank // tp] for rank in range(mesh.num_ranks)]


def expected(seed: int, xs: Sequence[Tensor]) -> list[Tensor]:
    program = compile_rank(Mesh(), seed, FakeWorld(1))
    return [program.run(SimpleNamespace(x_TD=x)) for x in xs]


def differs(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    return any(
        float((a - b).abs().max()) > 1e-4 * float(b.abs().max())
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("widths", MESHES.values(), ids=MESHES)
def test_every_rank_equals_one_device_and_needs_every_collective(widths: Widths) -> None:
    mesh = Mesh.of(widths)
    xs = inputs(mesh)
    kinds: set[str] = set()
    for seed in range(4):
        world = FakeWorld(mesh.num_ranks)
        programs = [compile_rank(mesh.at(r), seed, world) for r in range(mesh.num_ranks)]

        def run(rank: int, programs: list[Program] = programs) -> Tensor:
            return programs[rank].run(SimpleNamespace(x_TD=xs[rank]))

        want = expected(seed, xs)
        assert not differs(world.run(run), want), seed
        calls = [kind for kind, _, _ in world.calls[0]]
        kinds |= {*calls}
        for skipped in range(len(calls)):
            world.skipped = skipped
            assert differs(world.run(run), want), f"seed {seed}: {calls[skipped]} was for nothing"
    assert {"all_reduce", "all_gather"} <= kinds
    assert "reduce_scatter" in kinds or widths.attn_tp == widths.dense_tp
