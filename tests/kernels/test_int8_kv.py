# SPDX-License-Identifier: Apache-2.0
"""Keys and values in int8, a scale per row: what is written, what is read, and by whom."""

import pytest
import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.kernels.kv_rows import load_rows, row_elements, store_rows
from tokenlight.kernels.ops.paged_attention.reference import reference as attention_reference
from tokenlight.kernels.ops.write_kv.reference import reference as write_reference

HEADS, KV_HEADS, BLOCK_TOKENS, NUM_BLOCKS, TOKENS = 6, 2, 4, 40, 150


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make_caches(head_dim: int) -> tuple[Tensor, Tensor]:
    shape = (NUM_BLOCKS, KV_HEADS, BLOCK_TOKENS, row_elements(torch.int8, head_dim))
    return torch.full(shape, -128, dtype=torch.int8), torch.full(shape, -128, dtype=torch.int8)


def batch(first: int, last: int) -> dict[str, Tensor]:
    table = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(1)).int()[None]
    return {
        "query_starts": torch.tensor([0, last - first], dtype=torch.int32),
        "block_table": table,
        "slots": torch.zeros(1, dtype=torch.int32),
    }


def write(head_dim: int, writer=kernels.write_kv_) -> tuple[Tensor, Tensor]:
    caches = make_caches(head_dim)
    k, v = (random(TOKENS, KV_HEADS, head_dim, seed=s) for s in (2, 3))
    k[5] = 0
    positions = torch.arange(TOKENS, dtype=torch.int32)
    parts = batch(0, TOKENS)
    writer(k, v, *caches, positions, *(parts[n] for n in ("query_starts", "block_table", "slots")))
    return caches


def attend(caches, q: Tensor, first: int, last: int, run=kernels.paged_attention, **options):
    parts = batch(first, last)
    kv_lens = torch.tensor([last], dtype=torch.int32)
    return run(
        q[first:last], *caches, parts["query_starts"], kv_lens, parts["block_table"],
        parts["slots"], None, scale=q.shape[-1] ** -0.5, **options,
    )  # fmt: skip


@pytest.mark.parametrize("head_dim", [64, 40])
def test_what_is_written_is_what_the_reference_writes(head_dim) -> None:
    ours, theirs = write(head_dim), write(head_dim, write_reference)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("head_dim", [64, 40, 8, 128, 80])
@pytest.mark.parametrize("options", [{}, {"window": 37}, {"softcap": 5.0}])
def test_attention_agrees_with_the_reference(head_dim, options) -> None:
    caches, q = write(head_dim), random(TOKENS, HEADS, head_dim, seed=4)
    ours = attend(caches, q, 0, TOKENS, **options)
    theirs = attend(caches, q, 0, TOKENS, run=attention_reference, **options)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head_dim", [64, 128, 40])
def test_rows_have_the_same_bits_however_they_are_grouped(head_dim) -> None:
    caches, q = write(head_dim), random(TOKENS, HEADS, head_dim, seed=4)
    whole = attend(caches, q, 0, TOKENS)
    for first, last in ((0, 1), (1, 40), (40, TOKENS - 1), (TOKENS - 1, TOKENS)):
        assert torch.equal(attend(caches, q, first, last), whole[first:last])


def test_a_row_keeps_two_digits_of_each_number() -> None:
    rows = random(50, 64, seed=5) * torch.logspace(-20, 20, 50)[:, None]
    error = (load_rows(store_rows(rows, torch.int8)) - rows).abs().amax(-1)
    assert (error <= rows.abs().amax(-1) / 254 * 1.001).all()


def test_what_is_no_number_stays_none() -> None:
    rows = torch.ones(2, 64)
    rows[0, 3], rows[1, 4] = torch.inf, torch.nan
    assert load_rows(store_rows(rows, torch.int8)).isnan().all()
