# SPDX-License-Identifier: Apache-2.0
"""A traced call is one node with its author's line; what computes elsewhere is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tokenlight import kernels
from tokenlight.kernels.contract import Op
from tokenlight.nn import FusedLinear, RMSNorm
from tokenlight.spmd import PROBE_ROWS, Limits, Program, compile_method
from tokenlight.spmd.trace import line_of, path_of, trace
from tokenlight.weights import fill_without_numbers

LIMITS = Limits(T=4, S=2)
CPU = torch.device("cpu")


def probe(**fields: Tensor) -> SimpleNamespace:
    return SimpleNamespace(**{name: x.to("meta") for name, x in fields.items()})


def rows(width: int, of: str = "T") -> Tensor:
    return torch.empty(PROBE_ROWS[of], width, device="meta")


def compiled(module: nn.Module, **fields: Tensor) -> Program:
    return compile_method(module, "forward", probe(**fields), device=CPU, limits=LIMITS)


class Layer(nn.Module):
    """Plain arithmetic, a contract, and views."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(8, eps=1e-5)
        self.norm.weight_D = torch.rand(8)

    def forward(self, step: SimpleNamespace) -> Tensor:
        left, _ = (step.x_TD + step.x_TD).unflatten(-1, (2, 8)).split((1, 1), dim=1)
        return self.norm(left.flatten(1)) * 2.0 + step.y_TD


def test_arithmetic_is_contracts_and_labels_are_modules() -> None:
    graph = trace(Layer(), "forward")
    calls = [n for n in graph.nodes if isinstance(n.target, Op)]
    assert [n.target for n in calls] == [kernels.add, kernels.rms_norm, kernels.scale, kernels.add]
    assert [path_of(n) for n in calls] == ["", "norm", "", ""]
    assert line_of(calls[1]).rpartition(":")[0].endswith("nn/norm.py")
    assert line_of(calls[2]).rpartition(":")[0].endswith("spmd/test_trace.py")
    assert calls[2].kwargs == {"factor": 2.0}


def test_a_view_of_a_buffer_is_no_instruction_and_the_numbers_are_the_eager_ones() -> None:
    class Views(Layer):
        def forward(self, step: SimpleNamespace) -> Tensor:
            sum_TD = step.x_TD + step.x_TD
            _, right = sum_TD.unflatten(-1, (2, 8)).split((1, 1), dim=1)
            return self.norm(right.flatten(1)) + step.y_TD

    module = Views()
    program = compiled(module, x_TD=rows(16), y_TD=rows(8))
    assert [i.op.name for i in program.instructions] == ["add", "rms_norm", "add"]
    view = program.instructions[1].operands[0]
    assert (view.offset, view.shape, view.strides) == (8, (8,), (16, 1))
    for num_tokens in (0, 1, 4):
        step = SimpleNamespace(x_TD=torch.randn(num_tokens, 16), y_TD=torch.randn(num_tokens, 8))
        torch.testing.assert_close(program.run(step), module(step), rtol=0, atol=0)


def test_parts_of_different_formats_are_joined_by_a_contract() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = FusedLinear(32, (16, 16))

        def forward(self, step: SimpleNamespace) -> Tensor:
            return self.proj(step.x_TD)

    module = Mixed()
    formats = (kernels.FORMATS["q8_0"], kernels.FORMATS["f16"])
    fill_without_numbers(module, lambda _, part: formats[part], torch.float32)
    names = [i.op.name for i in compiled(module, x_TD=rows(32)).instructions]
    assert names == ["linear", "linear", "concat_columns"]


@pytest.mark.parametrize(
    ("name", "compute"),
    [("cos", lambda x: x.cos()), ("relu", torch.relu), ("sub", lambda x: x - 1)],
)
def test_what_computes_outside_a_contract_is_refused_with_its_line(
    name: str, compute: Callable[[Tensor], Tensor]
) -> None:
    class Computes(nn.Module):
        def forward(self, step: SimpleNamespace) -> Tensor:
            return compute(step.x_TD + step.x_TD)

    with pytest.raises(TypeError, match=rf"test_trace\.py:\d+: {name} computes; call a contract"):
        compiled(Computes(), x_TD=rows(8))


def test_a_tensor_that_is_no_buffer_is_refused() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gains = [torch.ones(8)]

        def forward(self, step: SimpleNamespace) -> Tensor:
            return kernels.rms_norm(step.x_TD, self.gains[0], eps=1e-5)

    with pytest.raises(TypeError, match=r"shape \[8\] at .*test_trace\.py:\d+ is no buffer"):
        trace(Hidden(), "forward")


def test_a_view_of_what_the_step_brings_is_refused() -> None:
    class Flattens(nn.Module):
        def forward(self, step: SimpleNamespace) -> Tensor:
            return step.x_TD.flatten(1) + step.x_TD

    with pytest.raises(TypeError, match="a view of what the step brings is not supported"):
        compiled(Flattens(), x_TD=rows(8))


def test_a_branch_on_the_step_is_refused() -> None:
    class Branches(nn.Module):
        def forward(self, step: SimpleNamespace) -> Tensor:
            return step.x_TD + step.x_TD if step.x_TD.shape[0] > 1 else step.x_TD

    with pytest.raises(torch.fx.proxy.TraceError):
        trace(Branches(), "forward")


def test_rows_of_no_step_are_refused() -> None:
    with pytest.raises(ValueError, match=r"first dimension of \[7, 16\] is no row count"):
        compiled(Layer(), x_TD=torch.empty(7, 16), y_TD=torch.empty(7, 8))


def test_an_eager_call_asks_nothing_of_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once bound, a call goes straight to its implementation: no look-up but one."""
    x_TD, weight_D = torch.rand(2, 8), torch.ones(8)
    kernels.rms_norm(x_TD, weight_D, eps=1e-5)
    monkeypatch.setattr(kernels.rms_norm, "bind", None)
    monkeypatch.setattr("tokenlight.kernels.contract.Proxy", None)
    assert kernels.rms_norm(x_TD, weight_D, eps=1e-5).shape == (2, 8)
