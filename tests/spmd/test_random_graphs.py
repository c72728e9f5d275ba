# SPDX-License-Identifier: Apache-2.0
"""Random module graphs on random meshes give what one device gives, with no collective too many."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
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
    PlacementError,
    Program,
    Ranks,
    Shard,
    Widths,
    build_chain,
    compile_method,
    pieces,
    placed,
    placed_graph,
    weight_layouts,
)
from tokenlight.spmd.placement import Declared
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

    role = "attn_tp"

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.proj = FusedLinear(DIM, (mesh.split(self.role, DIM, "features"),), bias=True)

    @placed("attn_tp", x_TD=REPLICATE, returns=Shard(1))
    def forward(self, x_TD: Tensor) -> Tensor:
        return self.proj(x_TD)


class Rows(TensorModule):
    """Each rank has some of the in features."""

    role = "attn_tp"

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.proj = Linear(mesh.split(self.role, DIM, "features"), DIM, bias=True)

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


class Halved(TensorModule):
    """Does not mind which features a rank has, if all ranks have others."""

    def __init__(self, _: Mesh) -> None:
        super().__init__()

    @placed("all", x_TD=Shard(1), returns=Shard(1))
    def forward(self, x_TD: Tensor) -> Tensor:
        return x_TD * 0.5


def shared_by(role: str, kind: type[nn.Module]) -> type[nn.Module]:
    """The same module, split over another group of ranks."""

    def forward(self: nn.Module, x_TD: Tensor) -> Tensor:
        return kind.forward(self, x_TD)

    told = kind.forward.declared
    declare = placed(role, returns=told.returns, **told.inputs)
    return type(f"{kind.__name__}_{role}", (kind,), {"role": role, "forward": declare(forward)})


FEW_KINDS = (Columns, Rows, Whole, gated)
ALL_KINDS = (
    Whole,
    Halved,
    gated,
    *(
        shared_by(role, kind)
        for role in ("attn_tp", "dense_tp", "moe_tp", "all")
        for kind in (Columns, Rows)
    ),
)
Kinds = tuple[Callable[[Mesh], nn.Module], ...]


class Graph(TensorModule):
    """Modules on random earlier values; sums of random pairs; nothing is left unused."""

    def __init__(self, mesh: Mesh, seed: int, kinds: Kinds = FEW_KINDS) -> None:
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
                self.parts.append(rng.choice(kinds)(mesh))

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


def compile_rank(mesh: Mesh, seed: int, world: FakeWorld, kinds: Kinds = FEW_KINDS) -> Program:
    chain = build_chain(lambda mesh: Graph(mesh, seed, kinds), mesh)
    held = pieces(chain, mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    model = Graph(mesh, seed, kinds)
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


def expected(seed: int, xs: Sequence[Tensor], kinds: Kinds) -> list[Tensor]:
    program = compile_rank(Mesh(), seed, FakeWorld(1), kinds)
    return [program.run(SimpleNamespace(x_TD=x)) for x in xs]


def differs(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    return any(
        float((a - b).abs().max()) > 1e-4 * float(b.abs().max())
        for a, b in zip(ours, theirs, strict=True)
    )


def check(widths: Widths, seed: int, kinds: Kinds) -> set[str]:
    """Every rank equals one device, and not without any one collective; which kinds there were."""
    mesh = Mesh.of(widths)
    xs, world = inputs(mesh), FakeWorld(mesh.num_ranks)
    programs = [compile_rank(mesh.at(r), seed, world, kinds) for r in range(mesh.num_ranks)]

    def run(rank: int) -> Tensor:
        return programs[rank].run(SimpleNamespace(x_TD=xs[rank]))

    want = expected(seed, xs, kinds)
    assert not differs(world.run(run), want), seed
    calls = [kind for kind, _, _ in world.calls[0]]
    for skipped in range(len(calls)):
        world.skipped = skipped
        assert differs(world.run(run), want), f"seed {seed}: {calls[skipped]} was for nothing"
    return {*calls}


def declaring(kinds: Kinds) -> list[type[nn.Module]]:
    """Those whose word is asked for; `gated` makes one that has its own."""
    found = [GatedMLP if kind is gated else kind for kind in kinds]
    return [kind for kind in found if isinstance(kind, type) and declared_by(kind) is not None]


def declared_by(kind: type[nn.Module]) -> Declared | None:
    return getattr(kind.forward, "declared", None)


def is_refused(mesh: Mesh, seed: int, kinds: Kinds) -> bool:
    """Whether the graph is, as its ranks would compile it."""
    chain = build_chain(lambda mesh: Graph(mesh, seed, kinds), mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    try:
        placed_graph(chain[-1], "forward", probe, Ranks(mesh, weight_layouts(chain)))
    except PlacementError:
        return True
    return False


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=() if s < 2 else pytest.mark.slow) for s in range(12)]
)
def test_a_false_word_in_a_random_graph_is_refused(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of whichever module, wherever it stands, of one of its inputs or of its result."""
    rng = random.Random(seed)
    mesh = Mesh.of(rng.choice([*MESHES.values()]))
    part_kinds = {type(part) for part in Graph(mesh, seed, ALL_KINDS).parts}
    assert not is_refused(mesh, seed, ALL_KINDS)
    num_tried = 0
    for kind in declaring(ALL_KINDS):
        told = declared_by(kind)
        assert told is not None
        assert told.returns is not None
        # What moves whatever it is given says the truth of any columns; a group of one has no word.
        if kind not in part_kinds or kind is Halved or mesh.size(mesh.roles[told.role]) == 1:
            continue
        false = [p for p in (REPLICATE, PARTIAL, Shard(0), Shard(1)) if p != told.returns]
        inputs = {
            n: rng.choice([p for p in (PARTIAL, Shard(0)) if p != t])
            for n, t in told.inputs.items()
        }
        for planted in (
            told._replace(returns=rng.choice(false)),
            told._replace(inputs=inputs),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(kind.forward, "declared", planted)
                assert is_refused(mesh, seed, ALL_KINDS), f"{kind.__name__} was believed: {planted}"
            num_tried += 1
    assert num_tried or len(part_kinds) < 4


@pytest.mark.parametrize("widths", MESHES.values(), ids=MESHES)
def test_every_rank_equals_one_device_and_needs_every_collective(widths: Widths) -> None:
    kinds = set[str]().union(*(check(widths, seed, FEW_KINDS) for seed in range(4)))
    assert {"all_reduce", "all_gather"} <= kinds
    assert "reduce_scatter" in kinds or widths.attn_tp == widths.dense_tp


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=() if s < 2 else pytest.mark.slow) for s in range(40)]
)
def test_modules_placed_at_random_on_meshes_of_random_widths(seed: int) -> None:
    rng = random.Random(seed)
    num_ranks = rng.choice((2, 4, 8))
    attn_tp, dense_tp, moe_tp = (rng.choice((1, 2, 4, 8)) for _ in range(3))
    widths = Widths(
        num_ranks=num_ranks,
        attn_tp=min(attn_tp, num_ranks),
        dense_tp=min(dense_tp, num_ranks),
        moe_tp=min(moe_tp, num_ranks),
    )
    check(widths, seed, ALL_KINDS)
