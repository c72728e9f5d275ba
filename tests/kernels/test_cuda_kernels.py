# SPDX-License-Identifier: Apache-2.0
"""The tuned CUDA kernels on a device: what conformance's small cases do not reach.

Heights and widths of products beside float64, the same bits however slowly memory answers, and the
same numbers from a captured graph, replayed.
"""

from functools import partial

import pytest
import torch
from torch import Tensor

from tokenlight.kernels.cuda import workspace
from tokenlight.kernels.ops.linear.cuda import Around, few_rows
from tokenlight.kernels.ops.paged_attention import cases as attention_cases
from tokenlight.kernels.ops.paged_attention.cuda import attend
from tokenlight.kernels.ops.paged_attention.reference import reference as attention_reference
from tokenlight.kernels.ops.sample import cases as sample_cases
from tokenlight.kernels.ops.sample.cuda import cuda as sample

pytestmark = pytest.mark.cuda

SHAPES = [(6144, 4096), (4096, 12288), (37, 512), (40, 96), (24, 264), (100, 8), (48, 576)]
KINDS = ["plain", "bias and residual", "norm", "silu_mul", "norm and silu_mul"]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


class Product:
    """16 rows of a product of one kind, and what float64 makes of it."""

    def __init__(self, kind: str, n: int, k: int) -> None:
        torch.manual_seed(n + k)
        self.x_TK, self.weight = random(16, k), random(n, k) * k**-0.5
        self.bias_N, self.residual_TN = random(n), random(16, n)
        self.gain_K = 1 + 0.1 * random(k)
        self.kind = kind

    def run(self, rows: slice) -> Tensor:
        around = Around()
        if "norm" in self.kind:
            around = around._replace(gain_K=self.gain_K, eps=1e-5)
        if "silu_mul" in self.kind:
            around = around._replace(has_silu_mul=True)
        if "bias" in self.kind:
            around = around._replace(bias_N=self.bias_N, residual_TN=self.residual_TN[rows])
        return few_rows(self.x_TK[rows], self.weight, around)

    def truth(self) -> Tensor:
        wide = self.x_TK.double()
        if "norm" in self.kind:
            wide = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
            wide = wide * self.gain_K.double()
        y = wide @ self.weight.double().T
        if "bias" in self.kind:
            y = y + self.bias_N.double() + self.residual_TN.double()
        if "silu_mul" in self.kind:
            gate, up = y.chunk(2, dim=-1)
            y = gate * gate.sigmoid() * up
        return y


def products() -> list:
    return [
        pytest.param(kind, n, k, id=f"{kind} {n}x{k}")
        for kind in KINDS
        for n, k in SHAPES
        if n % 2 == 0 or "silu_mul" not in kind
    ]


@pytest.mark.parametrize(("kind", "n", "k"), products())
def test_products_agree_with_float64_and_rows_with_themselves(kind: str, n: int, k: int) -> None:
    product = Product(kind, n, k)
    want = product.truth()
    whole = product.run(slice(0, 16))
    assert (whole.double() - want).norm() <= 8e-3 * want.norm()
    for height in (1, 2, 3, 7, 8, 9, 15):
        for first in (0, 16 - height):
            rows = slice(first, first + height)
            assert torch.equal(product.run(rows), whole[rows])


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_does_not_depend_on_how_fast_memory_answers(kind: str) -> None:
    """Weights from the cache or from memory: the copies are ahead of the sums, or behind."""
    other = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
    for n, k in SHAPES[:2]:
        product = Product(kind, n, k)
        for height in (1, 8, 16):
            first = product.run(slice(0, height))
            for i in range(12):
                if i % 2:
                    other.zero_()
                assert torch.equal(product.run(slice(0, height)), first)


@pytest.mark.parametrize(
    "requests",
    [((1, 5000), (8, 4097), (2, 1024)), ((1, 20000), (4, 17000)), ((1, 70000),), ((1, 3),) * 40],
    ids=["segments", "long", "longest", "many"],
)
@pytest.mark.parametrize(("heads", "dim"), [((32, 8), 128), ((9, 3), 64), ((16, 1), 128)])
def test_attention_over_long_caches(requests, heads: tuple[int, int], dim: int) -> None:
    shape = attention_cases.Shape(requests, *heads, dim, 64, torch.bfloat16)
    case = attention_cases._case("long", shape, "cuda")
    q, *rest = case.args
    got = attend(q.bfloat16(), *rest, **case.kwargs)
    want = attention_reference(q.bfloat16().float(), *rest, **case.kwargs)
    assert (got.float() - want).norm() <= 6e-3 * want.norm()
    assert not workspace("attention counters", 1, torch.device("cuda")).any()


SAMPLINGS = [
    (50.0, 0, 0.7, 0.0),
    (50.0, 3000, 1.0, 0.01),
    (0.8, 50, 0.95, 0.0),
    (1.5, 90, 0.9, 0.02),
]


@pytest.mark.parametrize("logits", ["random", "equal", "few values"])
def test_a_row_is_sampled_alone_as_among_others(logits: str) -> None:
    """However many blocks hold a row, and whether its tokens are few, many or of one value."""
    torch.manual_seed(0)
    x = 2 * torch.randn(16, 151_936, device="cuda")
    if logits == "equal":
        x.zero_()
    elif logits == "few values":
        x.round_()
    for temperature, top_k, top_p, min_p in SAMPLINGS:
        columns = (
            torch.full((16,), temperature, device="cuda"),
            torch.full((16,), top_k, device="cuda", dtype=torch.int32),
            torch.full((16,), top_p, device="cuda"),
            torch.full((16,), min_p, device="cuda"),
            torch.arange(16, device="cuda") + 7,
            torch.arange(16, device="cuda", dtype=torch.int32) + 100,
        )
        whole = sample(x, *columns)
        for row in (slice(0, 1), slice(5, 6), slice(9, 16)):
            assert torch.equal(sample(x[row], *(c[row] for c in columns)), whole[row])


def replayed(call) -> Tensor:
    """The result of a second replay."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    out.zero_()
    graph.replay()
    graph.replay()
    return out


def test_a_captured_step_gives_what_an_eager_one_gives() -> None:
    product = Product("norm and silu_mul", 6144, 4096)
    call = partial(product.run, slice(0, 4))
    assert torch.equal(replayed(call), call())
    shape = attention_cases.Shape(((1, 5000), (1, 70)), 32, 8, 128, 64, torch.bfloat16)
    q, *rest = attention_cases._case("captured", shape, "cuda").args
    call = partial(attend, q.bfloat16(), *rest, scale=0.1)
    assert torch.equal(replayed(call), call())
    case = next(c for c in sample_cases.cases("cuda") if c.name == "all filters")
    call = partial(sample, *case.args)
    assert torch.equal(replayed(call), call())


def test_a_block_outside_the_pool_makes_its_rows_nan() -> None:
    shape = attention_cases.Shape(((1, 300), (1, 40)), 8, 2, 128, 16, torch.bfloat16)
    q, k, v, starts, lens, table, slots = attention_cases._case("outside", shape, "cuda").args
    table = table.clone()
    table[slots[0].long(), 3] = len(k)
    out = attend(q.bfloat16(), k, v, starts, lens, table, slots, scale=0.1)
    assert out[0].isnan().all()
    assert out[1].isfinite().all()
