# SPDX-License-Identifier: Apache-2.0
"""Decode attention whose table says that all requests are short: the bits that any table gives.

On a device, and on the CPU from the kernels' own text (`cuda_on_cpu.py`).
"""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.kernels.cuda_on_cpu import COMPILER, SourceOnCpu, Workspaces
from tokenlight.kernels.case import Case
from tokenlight.kernels.cuda import Kernel
from tokenlight.kernels.ops.paged_attention import SHORT_TOKENS, cases, cuda, cuda_short

# Chunks grow every 512 positions from 1024 on. Drafts lie on both sides.
EDGES = tuple(
    (1, tokens)
    for unit in range(5)
    for tokens in range(512 * unit - 1, 512 * unit + 2)
    if 0 < tokens <= SHORT_TOKENS
)
STAGES = ((1, 15), (1, 16), (1, 17), (1, 63), (1, 64), (1, 65), (1, 127), (1, 128), (1, 129))
DRAFTS = ((8, 515), (4, 1025), (3, 1537), (8, 2048), (2, 2), (1, 300), (5, 5))
LONG = ((1, 2050), (1, 2100), (1, 4096), (1, 4097))
TWO_OF_128 = (8, 2, 128, 16)


class Both(NamedTuple):
    """Where both kernels run, and how often each was launched."""

    device: str
    num_launches: Callable[[], tuple[int, int]]
    keep_low_halves: Callable[[bool], None] | None = None


def newest(q_THd, k_cache, v_cache, query_starts, kv_lens, block_table, slots) -> Iterator[Tensor]:
    """The memory that a step's queries, keys and values fill."""
    yield q_THd
    block_tokens = k_cache.shape[2]
    for r, (kv_len, slot) in enumerate(zip(kv_lens.tolist(), slots.tolist(), strict=True)):
        for position in range(kv_len - int(query_starts[r + 1] - query_starts[r]), kv_len):
            column, row = divmod(position, block_tokens)
            if column < block_table.shape[1] and 0 <= block_table[slot, column] < len(k_cache):
                for cache in (k_cache, v_cache):
                    yield from cache[block_table[slot, column], :, row]


def on_cpu(folder: Path) -> Iterator[Both]:
    names = ("64_8", "64_16", "64_32", "128_8")
    ring = SourceOnCpu(
        cuda._SOURCE.path, [f"attend_{name}" for name in names], "AttentionParams", folder
    )
    short = SourceOnCpu(
        cuda_short._SOURCE.path,
        [f"attend_short_{name}" for name in names],
        "AttentionParams",
        folder,
        cluster=cuda.SHORT_CHUNKS,
    )
    attend = cuda.attend

    def attend_behind(*args: Tensor, **kwargs) -> Tensor:
        """While the kernel that writes the queries and their tokens is not known to have ended."""
        for source in (ring, short):
            for row in newest(*args[:7]):
                source.library.written_ahead(
                    ctypes.c_void_p(row.data_ptr()), ctypes.c_size_t(row.nbytes)
                )
        try:
            return attend(*args, **kwargs)
        finally:
            for source in (ring, short):
                source.library.written_ahead(None, ctypes.c_size_t(0))

    with (
        patch.object(cuda, "attend", attend_behind),
        patch.object(cuda, "_SOURCE", ring),
        patch.object(cuda_short, "_SOURCE", short),
        patch.object(cuda, "workspace", Workspaces()),
        patch.object(cuda, "num_multiprocessors", lambda: 132),
    ):
        yield Both(
            "cpu",
            lambda: (ring.num_launches, short.num_launches),
            lambda keeps: [each.keep_low_halves(keeps) for each in (ring, short)],
        )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("cuda", marks=pytest.mark.cuda),
        pytest.param(
            "cpu",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
            ],
        ),
    ],
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    if request.param == "cpu":
        yield from on_cpu(tmp_path_factory.mktemp("kernels"))
        return
    counts = {"attend": 0, "attend_short": 0}
    launch = Kernel.launch

    def counted(kernel, grid, params):
        counts[kernel.name.rsplit("_", 2)[0]] += 1
        launch(kernel, grid, params)

    with patch.object(Kernel, "launch", counted):
        yield Both("cuda", lambda: (counts["attend"], counts["attend_short"]))


def make_case(requests, heads: tuple[int, int, int, int], device: str, **kwargs) -> Case:
    """Of so many heads, kv heads, dimensions and tokens of a block."""
    return cases._case("short", cases.Shape(requests, *heads, torch.bfloat16), device, **kwargs)


def attend(case: Case, num_columns: int) -> Tensor:
    q_THd, k_cache, v_cache, query_starts, kv_lens, block_table, slots, *sinks = case.args
    wide = block_table.new_full((block_table.shape[0], num_columns), 1 << 20)
    kept = min(num_columns, block_table.shape[1])
    wide[:, :kept] = block_table[:, :kept]
    batch = (k_cache, v_cache, query_starts, kv_lens, wide, slots, *sinks)
    return cuda.attend(q_THd.bfloat16(), *batch, **case.kwargs)


def narrow_and_wide(case: Case) -> tuple[Tensor, Tensor]:
    most = SHORT_TOKENS // case.args[1].shape[2]
    return attend(case, most), attend(case, most + 1)


def exact(case: Case) -> Tensor:
    """In float64."""
    q_THd, k_cache, v_cache, query_starts, kv_lens, block_table, slots, *sinks = case.args
    window, softcap = case.kwargs["window"], case.kwargs["softcap"]
    rows = []
    for r, (kv_len, slot) in enumerate(zip(kv_lens.tolist(), slots.tolist(), strict=True)):
        q_HTd = q_THd[query_starts[r] : query_starts[r + 1]].bfloat16().double().transpose(0, 1)
        blocks = block_table[slot, : -(-kv_len // k_cache.shape[2])].long()
        k_HLd, v_HLd = (
            cache[blocks].transpose(0, 1).flatten(1, 2)[:, :kv_len].double()
            .repeat_interleave(q_HTd.shape[0] // cache.shape[1], 0)
            for cache in (k_cache, v_cache)
        )  # fmt: skip
        scores_HTL = q_HTd @ k_HLd.mT * case.kwargs["scale"]
        if softcap:
            scores_HTL = softcap * (scores_HTL / softcap).tanh()
        key_L = torch.arange(kv_len, device=q_THd.device)
        query_T1 = key_L[kv_len - q_HTd.shape[1] :, None]
        is_hidden = (key_L > query_T1) | (key_L <= query_T1 - (window or kv_len))
        scores_HTL = scores_HTL.masked_fill(is_hidden, -torch.inf)
        if sinks:
            of_sinks = sinks[0].double()[:, None, None].expand(-1, q_HTd.shape[1], 1)
            scores_HTL = torch.cat([scores_HTL, of_sinks], -1)
        weights_HTL = scores_HTL.softmax(-1)[..., :kv_len]
        rows.append((weights_HTL @ v_HLd).transpose(0, 1))
    return torch.cat(rows)


def worst_error(got_THd: Tensor, want_THd: Tensor) -> float:
    """Of a row of a head, by its norm."""
    errors = (got_THd.double() - want_THd).norm(dim=-1) / want_THd.norm(dim=-1)
    return float(errors.max())


@pytest.mark.parametrize(
    ("requests", "heads", "options"),
    [
        pytest.param(EDGES, TWO_OF_128, {}, id="edges"),
        pytest.param(STAGES, TWO_OF_128, {}, id="stages"),
        pytest.param(DRAFTS, (8, 2, 64, 32), {}, id="drafts"),
        pytest.param(DRAFTS, (8, 2, 64, 32), {"window": 700}, id="window in drafts"),
        pytest.param(EDGES, (8, 2, 128, 16), {"window": 70}, id="window"),
        pytest.param(EDGES[-4:], (9, 3, 64, 64), {"sinks": True}, id="sinks"),
        pytest.param(STAGES, (8, 2, 128, 256), {"softcap": 2.0}, id="softcap"),
        pytest.param(
            tuple((1, 1 + 5 * (i % 53)) for i in range(260)),
            (2, 1, 128, 16),
            {},
            id="many requests",
        ),
    ],
)
def test_a_short_request_has_the_same_bits_in_any_table(both, requests, heads, options) -> None:
    case = make_case(requests, heads, both.device, **options)
    num_ring, num_short = both.num_launches()
    narrow_THd, wide_THd = narrow_and_wide(case)
    assert both.num_launches() == (num_ring + -(-len(requests) // 256), num_short + 1)
    assert torch.equal(narrow_THd, wide_THd)
    if both.keep_low_halves is not None:
        both.keep_low_halves(True)
        narrow, wide = (out_THd.view(torch.int16) for out_THd in narrow_and_wide(case))
        both.keep_low_halves(False)
        assert torch.equal(narrow, wide)
    assert worst_error(narrow_THd, exact(case)) < 0.012
    for part in cases.parts(case)[:12]:
        (of_part,) = part.of_whole([narrow_THd])
        for alone in narrow_and_wide(part.case):
            assert torch.equal(alone, of_part), part.case.name


def test_beside_long_requests_as_alone(both) -> None:
    """Where blocks take turns, as well."""
    short = ((1, 700), (1, 2048), (1, 1), (1, 513))
    case = make_case(short + LONG, (8, 2, 128, 16), both.device)
    together_THd = attend(case, 4112 // 16)
    assert worst_error(together_THd, exact(case)) < 0.012
    for part in cases.parts(case)[: len(short)]:
        (of_part,) = part.of_whole([together_THd])
        for alone in narrow_and_wide(part.case):
            assert torch.equal(alone, of_part), part.case.name
    if both.device == "cpu":
        num_short = len(short)
        with patch.object(cuda, "num_multiprocessors", lambda: 17):  # fewer than there are chunks
            assert torch.equal(attend(case, 4112 // 16)[:num_short], together_THd[:num_short])


def test_a_block_out_of_the_pool_is_not_followed(both) -> None:
    case = make_case(((1, 600), (1, 600)), (8, 2, 128, 16), both.device)
    block_table, slots = case.args[5:7]
    block_table[slots[0], 20] = 1 << 20
    for out_THd in narrow_and_wide(case):
        assert out_THd[0].isnan().all()
        assert not out_THd[1].isnan().any()


@pytest.mark.parametrize(
    ("heads", "window"),
    [
        pytest.param((8, 2, 128, 16), 0, id="more chunks"),
        pytest.param((32, 32, 128, 16), 0, id="longer chunks"),
        pytest.param((8, 2, 128, 16), 700, id="window"),
    ],
)
def test_a_length_that_the_table_has_no_room_for_gives_nan(both, heads, window) -> None:
    requests = ((1, SHORT_TOKENS), (1, SHORT_TOKENS + 1))
    case = make_case(requests, heads, both.device, window=window)
    block_table, slots = case.args[5:7]
    block_table[slots[1] + 1, 0] = block_table[slots[0], 0]  # a column too far, a block of others
    out_THd = attend(case, SHORT_TOKENS // 16)
    assert not out_THd[0].isnan().any()
    assert out_THd[1].isnan().all()
