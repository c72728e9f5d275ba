# SPDX-License-Identifier: Apache-2.0
"""Which calls the tuned CUDA kernels take, and who takes the others: decided on the host."""

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels import OPS, contract, load_backends, withdraw_row_dependent
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import portable
from tokenlight.kernels.ops.linear.cuda import MAX_ROWS, Around, few_rows, serves
from tokenlight.kernels.ops.paged_attention.cuda import serves as attends

BF16 = torch.bfloat16


@pytest.mark.parametrize(
    ("num_rows", "k", "stride", "is_taken"),
    [
        (1, 4096, 4096, True),
        (MAX_ROWS, 576, 4096, True),
        (MAX_ROWS + 1, 576, 4096, False),
        (1, 8, 8, True),
        (1, 100, 104, False),
        (2, 96, 100, False),
        (0, 64, 64, True),
    ],
)
def test_products_take_few_rows_of_whole_sixteen_bytes(
    num_rows: int, k: int, stride: int, is_taken: bool
) -> None:
    x_TK = torch.zeros(num_rows, stride, dtype=BF16)[:, :k]
    assert serves(x_TK) is is_taken


def test_a_product_of_no_rows_launches_nothing() -> None:
    weight = torch.zeros(32, 64, dtype=BF16)
    assert few_rows(torch.zeros(0, 64, dtype=BF16), weight, Around()).shape == (0, 32)
    halved = few_rows(torch.zeros(0, 64, dtype=BF16), weight, Around(has_silu_mul=True))
    assert halved.shape == (0, 16)


@pytest.mark.parametrize(
    ("weight", "around", "complaint"),
    [
        (torch.zeros(32, 128, dtype=BF16), Around(), "rows of 64 features"),
        (torch.zeros(64, 32, dtype=BF16).T, Around(), "contiguous rows"),
        (torch.zeros(32, 64, dtype=BF16), Around(bias_N=torch.zeros(32)), "bfloat16, got torch.f"),
    ],
)
def test_a_product_refuses_what_it_would_misread(weight, around, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        few_rows(torch.zeros(2, 64, dtype=BF16), weight, around)


@pytest.mark.parametrize(
    ("num_tokens", "num_requests", "heads", "dim", "block_tokens", "is_taken"),
    [
        (4, 4, (32, 8), 128, 64, True),
        (300, 300, (32, 8), 128, 64, True),
        (32, 4, (32, 8), 128, 64, True),
        (33, 4, (32, 8), 128, 64, False),
        (300, 290, (32, 8), 128, 64, False),
        (4, 4, (9, 3), 64, 16, True),
        (4, 4, (32, 8), 80, 16, False),
        (4, 4, (64, 1), 128, 16, False),
        (4, 4, (32, 8), 128, 8, False),
        (4, 4, (32, 8), 128, 48, False),
    ],
)
def test_attention_takes_decodes_and_drafts(
    num_tokens: int,
    num_requests: int,
    heads: tuple[int, int],
    dim: int,
    block_tokens: int,
    is_taken: bool,
) -> None:
    meta = {"device": "meta"}
    q_THd = torch.empty(num_tokens, heads[0], dim, dtype=BF16, **meta)
    cache = torch.empty(9, heads[1], block_tokens, dim, dtype=BF16, **meta)
    slots = torch.empty(num_requests, dtype=torch.int32, **meta)
    assert attends(q_THd, cache, slots) is is_taken


def test_what_a_tuned_kernel_leaves_goes_to_the_best_below_it() -> None:
    x_TD, gain_D = torch.randn(3, 64), torch.ones(64)
    run = portable(kernels.rms_norm, x_TD, gain_D, eps=1e-6)
    (chosen,) = (i for i in kernels.rms_norm.implementations if i.run is run)
    assert chosen.rank < TUNED
    assert chosen.why_not(kernels.rms_norm.site(x_TD, gain_D, eps=1e-6)) is None
    others = [i.rank for i in kernels.rms_norm.implementations if i.device == "any"]
    assert chosen.rank >= max(others)


def test_what_depends_on_a_rows_company_says_so_and_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left of CUDA computes each row by itself, however many there are."""
    pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
    load_backends("cuda")
    for op in OPS.values():
        monkeypatch.setattr(op, "implementations", list(op.implementations))
    withdraw_row_dependent()
    left = {(op.name, i.backend) for op in OPS.values() for i in op.implementations}
    tuned = {name for name, backend in left if backend not in ("cpu", "reference", "triton")}
    assert tuned == {"rope_write_kv_", "sample"}
    monkeypatch.setattr(contract, "features", lambda device: {"sm90"})
    assert "not row-invariant" not in "".join(kernels.explain("cuda"))


@pytest.mark.parametrize(
    ("arch", "stored", "backend"),
    [
        (90, BF16, "cuda"),
        (90, torch.float8_e4m3fn, "triton_prefill"),
        (80, BF16, "triton_prefill"),
    ],
)
def test_float8_keys_and_older_gpus_are_served_by_the_portable_kernels(
    arch: int, stored: torch.dtype, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is installed on Linux x86-64 only")
    load_backends("cuda")
    monkeypatch.setattr(contract, "features", lambda device: {f"sm{arch}"})
    site = contract.Site("cuda", BF16, stored, None)
    assert kernels.paged_attention.bind(site).backend == backend
    writer = "cuda" if backend == "cuda" else "triton"
    assert kernels.rope_write_kv_.bind(site).backend == writer
    of_op = [i for i in kernels.paged_attention.implementations if i.is_row_invariant]
    monkeypatch.setattr(kernels.paged_attention, "implementations", of_op)
    assert kernels.paged_attention.bind(site).backend == "triton"
