# SPDX-License-Identifier: Apache-2.0
"""What a module declares of itself is true, or refused with the module, the line, both layouts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.spmd.test_random_graphs import DIM, F32, Columns, Rows, Whole, gated
from tokenlight.kernels.contract import op
from tokenlight.nn import GatedMLP, TensorModule
from tokenlight.spmd import (
    PARTIAL,
    PROBE_ROWS,
    REPLICATE,
    Mesh,
    PlacementError,
    Ranks,
    Shard,
    Widths,
    build_chain,
    placed_graph,
    weight_layouts,
)
from tokenlight.spmd.placement import Declared, Placement
from tokenlight.weights import fill_without_numbers

EVERY = (REPLICATE, PARTIAL, Shard(0), Shard(1))
TP2 = Mesh.of(Widths(num_ranks=2, attn_tp=2, dense_tp=2, moe_tp=2))
DP2 = Mesh.of(Widths(num_ranks=4, attn_tp=2, dense_tp=4, moe_tp=4))
TRUE: dict[type[nn.Module], Declared] = {
    kind: kind.forward.declared for kind in (Columns, Rows, GatedMLP)
}
FALSE = [
    pytest.param(kind, name, placement, id=f"{kind.__name__} {name} {placement}")
    for kind, told in TRUE.items()
    for name, true in {**told.inputs, "returns": told.returns}.items()
    for placement in EVERY
    if placement != true
]


class Chain(TensorModule):
    """Every kind of module before and after every other, so that all layouts arrive somewhere."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        kinds = [Columns, Rows, gated, Whole, gated, Columns, Whole, Rows, Columns, Rows]
        self.parts = nn.ModuleList(kind(mesh) for kind in kinds)

    def forward(self, step: SimpleNamespace) -> Tensor:
        x_TD = step.x_TD
        for part in self.parts:
            x_TD = part(x_TD)
        return x_TD


def check(kind: type[nn.Module], mesh: Mesh) -> None:
    chain = build_chain(kind, mesh)
    for model in chain:
        fill_without_numbers(model, lambda *_: F32, torch.float32)
    probe = SimpleNamespace(x_TD=torch.empty(PROBE_ROWS["T"], DIM, device="meta"))
    placed_graph(chain[-1], "forward", probe, Ranks(mesh, weight_layouts(chain)))


@pytest.mark.parametrize("mesh", [TP2, DP2], ids=["tp2", "tp2 dp2"])
def test_true_declarations_pass(mesh: Mesh) -> None:
    check(Chain, mesh)


@pytest.mark.parametrize("mesh", [TP2, DP2], ids=["tp2", "tp2 dp2"])
@pytest.mark.parametrize(("kind", "name", "placement"), FALSE)
def test_a_false_declaration_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    mesh: Mesh,
    kind: type[nn.Module],
    name: str,
    placement: Placement,
) -> None:
    role, inputs, returns = TRUE[kind]
    planted = (
        Declared(role, inputs, placement)
        if name == "returns"
        else Declared(role, {**inputs, name: placement}, returns)
    )
    monkeypatch.setattr(kind.forward, "declared", planted)
    with pytest.raises(PlacementError):
        check(Chain, mesh)


def test_the_message_has_the_module_the_line_and_both_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    role, inputs, _ = TRUE[GatedMLP]
    monkeypatch.setattr(GatedMLP.forward, "declared", Declared(role, inputs, REPLICATE))
    with pytest.raises(PlacementError) as refused:
        check(Chain, TP2)
    line = GatedMLP.forward.__code__.co_firstlineno
    assert str(refused.value).startswith("parts.2 (")
    assert f"nn/mlp.py:{line}): its result is declared Replicate in dense_tp" in str(refused.value)
    assert str(refused.value).endswith("found [Partial], wanted [Replicate]")


class SplitTwice(TensorModule):
    """Multiplies split features by a weight that all ranks have."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.columns, self.whole = Columns(mesh), Whole(mesh)

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.whole(self.columns(x_TD))


class Root(TensorModule):
    """The root's own declaration is not asked for."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.only = SplitTwice(mesh)

    def forward(self, step: SimpleNamespace) -> Tensor:
        return self.only(step.x_TD)


def test_inside_a_module_that_declares_itself_nothing_is_inserted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(Root, TP2)  # it declares nothing: what is split is gathered
    told = Declared("attn_tp", {"x_TD": REPLICATE}, REPLICATE)
    monkeypatch.setattr(SplitTwice.forward, "declared", told, raising=False)
    with pytest.raises(PlacementError, match=r"^only \(.*nn/norm\.py:\d+\): rms_norm cannot take"):
        check(Root, TP2)


def test_a_contract_without_rules_is_refused_only_where_ranks_share() -> None:
    @op
    def unheard_of(x_TD: Tensor) -> Tensor:
        """Nothing."""
        raise NotImplementedError

    unheard_of.shape(lambda x_TD: x_TD.new_empty(x_TD.shape))

    class Unheard(TensorModule):
        def __init__(self, _: Mesh) -> None:
            super().__init__()

        def forward(self, step: SimpleNamespace) -> Tensor:
            return unheard_of(step.x_TD)

    check(Unheard, Mesh())
    with pytest.raises(PlacementError, match=r"unheard_of has no row in spmd/rules\.py"):
        check(Unheard, TP2)
