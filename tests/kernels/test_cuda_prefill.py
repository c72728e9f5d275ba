# SPDX-License-Identifier: Apache-2.0
"""A prompt's attention in CUDA: what it takes, what it is told, and on a device what it gives."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tokenlight.kernels.cuda.compile import cubin_name, source_name, sources
from tokenlight.kernels.ops.paged_attention import cuda_prefill
from tokenlight.kernels.ops.paged_attention.cuda_prefill import attend, serves

BF16 = torch.bfloat16
TEXT = cuda_prefill._SOURCE.path.read_text()
BLOCK_SHARED_BYTES = 227 << 10


@pytest.mark.parametrize(
    ("num_tokens", "num_requests", "heads", "dim", "block_tokens", "is_taken"),
    [
        (64, 1, (32, 8), 128, 16, True),
        (63, 1, (32, 8), 128, 16, False),
        (300, 4, (9, 3), 64, 8, True),
        (300, 5, (9, 3), 64, 8, False),
        (1024, 1, (64, 1), 128, 256, True),
        (1024, 1, (256, 1), 128, 16, False),
        (1024, 1, (32, 8), 80, 16, False),
        (1024, 1, (32, 8), 128, 48, False),
        (1024, 1, (32, 8), 128, 4, False),
        (1024, 0, (32, 8), 128, 16, False),
    ],
)
def test_many_queries_of_a_request_are_taken(
    num_tokens: int,
    num_requests: int,
    heads: tuple[int, int],
    dim: int,
    block_tokens: int,
    is_taken: bool,
) -> None:
    q_THd = torch.empty(num_tokens, heads[0], dim, dtype=BF16, device="meta")
    cache = torch.empty(9, heads[1], block_tokens, dim, dtype=BF16, device="meta")
    slots = torch.empty(num_requests, dtype=torch.int32, device="meta")
    assert serves(q_THd, cache, slots, None) is is_taken
    assert not serves(q_THd, cache, slots, torch.zeros(heads[0]))
    odd_THd = torch.empty(num_tokens, heads[0] * dim + 4, dtype=BF16, device="meta")
    odd_THd = odd_THd[:, : heads[0] * dim].view(num_tokens, heads[0], dim)
    assert not serves(odd_THd, cache, slots, None)


def test_a_pool_whose_rows_no_int_counts_is_left() -> None:
    cache = torch.empty(1 << 24, 8, 16, 128, dtype=BF16, device="meta")
    q_THd = torch.empty(64, 32, 128, dtype=BF16, device="meta")
    assert not serves(q_THd, cache, torch.empty(1, dtype=torch.int32, device="meta"), None)


def test_params_are_laid_out_as_the_kernel_reads_them() -> None:
    body = re.search(r"struct PrefillParams {(.*?)\n};", TEXT, re.S).group(1)  # type: ignore[union-attr]
    declared = []
    for line in re.sub(r"//[^\n]*", "", body).split(";")[:-1]:
        kind, names = re.fullmatch(r"\s*(?:const )?(\w+)(.*)", line, re.S).groups()  # type: ignore[union-attr]
        for name in (n.strip() for n in names.split(",")):
            declared.append((name.lstrip("* "), 8 if "*" in name else {"Map": 128}.get(kind, 4)))
    fields = cuda_prefill._Params._fields_
    assert [(name, ctypes.sizeof(kind)) for name, kind in fields[:-1]] == declared
    # What ends a struct that is aligned to 64 bytes.
    assert fields[-1][0] == "padding"
    assert ctypes.sizeof(cuda_prefill._Params) == -(-sum(n for _, n in declared) // 64) * 64


def constant(name: str) -> int:
    return int(re.search(rf"constexpr int {name} = (\d+);", TEXT).group(1))  # type: ignore[union-attr]


def test_a_block_has_the_sizes_that_the_kernel_counts_on() -> None:
    assert constant("kRows") == cuda_prefill._ROWS
    assert constant("kKeys") == cuda_prefill._KEYS
    assert cuda_prefill._KEYS % cuda_prefill._MAX_BOX_TOKENS == 0
    assert cuda_prefill._THREADS == constant("kThreads") == 128 + 32 * constant("kMultiplyingWarps")
    for dim, asked in cuda_prefill._SHARED_BYTES.items():
        held = 2 * dim * (constant("kRows") + 2 * constant("kStages") * constant("kKeys"))
        assert held + 8 * 4 * constant("kStages") + 4 <= asked <= BLOCK_SHARED_BYTES
        assert f"PREFILL(prefill_{dim}, {dim})" in TEXT


def test_sources_of_one_op_have_names_of_their_own() -> None:
    assert source_name(Path("/ops/linear/cuda.cu")) == "linear"
    assert source_name(cuda_prefill._SOURCE.path) == "paged_attention_prefill"
    assert cuda_prefill._SOURCE.path in sources()
    names = [cubin_name(source, "sm_90a") for source in sources()]
    assert len(set(names)) == len(names)


class Prompts:
    """New tokens on tokens that are in the cache; what no query sees is NaN."""

    def __init__(
        self,
        requests: tuple[tuple[int, int], ...],
        heads: tuple[int, int] = (32, 8),
        dim: int = 128,
        block_tokens: int = 16,
    ) -> None:
        generator = torch.Generator().manual_seed(11)
        counts = [-(-length // block_tokens) for _, length in requests]
        num_blocks = sum(counts) + 3
        order = torch.randperm(num_blocks, generator=generator).tolist()
        shape = (2, num_blocks, heads[1], block_tokens, dim)
        caches = torch.randn(shape, generator=generator).to(BF16)
        table = torch.full((len(requests) + 1, max(counts) + 1), 1 << 20, dtype=torch.int32)
        for slot, ((_, length), count) in enumerate(zip(requests, counts, strict=True)):
            own = [order.pop() for _ in range(count)]
            table[slot, :count] = torch.tensor(own)
            caches[:, own[-1], :, length - (count - 1) * block_tokens :] = torch.nan
        caches[:, order] = torch.nan
        self.caches, self.table = caches.cuda(), table.cuda()
        self.requests, self.heads, self.dim = requests, heads, dim
        num_tokens = sum(new for new, _ in requests)
        # Strided, as queries lie beside keys and values.
        self.q_THd = torch.randn(num_tokens, heads[0] + 2 * heads[1], dim, generator=generator)
        self.q_THd = self.q_THd.to(BF16).cuda()[:, : heads[0]]

    def run(self, first: int = 0, end: int | None = None) -> Tensor:
        """Of all requests; or of the only request's tokens from `first` to before `end`."""
        new = [n for n, _ in self.requests] if end is None else [end - first]
        lengths = [n for _, n in self.requests]
        if end is not None:
            lengths[0] -= self.requests[0][0] - end
        starts = torch.tensor([0, *torch.tensor(new).cumsum(0).tolist()]).int().cuda()
        slots = torch.arange(len(new)).int().cuda()
        lens = torch.tensor(lengths).int().cuda()
        batch = (self.q_THd[first:end], *self.caches, starts, lens, self.table, slots)
        return attend(*batch, scale=self.dim**-0.5)

    def error(self, out_THd: Tensor) -> float:
        """Relative, of the worst row, against float64."""
        worst, start = 0.0, 0
        for slot, (new, length) in enumerate(self.requests):
            own = self.table[slot, : -(-length // self.caches.shape[3])].long()
            keys, values = (c[own].transpose(0, 1).flatten(1, 2)[:, :length] for c in self.caches)
            for row in range(0, new, 7):
                seen, group = length - new + row + 1, self.heads[0] // self.heads[1]
                q_KGd = self.q_THd[start + row].double().unflatten(0, (self.heads[1], group))
                scores = q_KGd @ keys[:, :seen].double().mT * self.dim**-0.5
                want = (scores.softmax(-1) @ values[:, :seen].double()).flatten(0, 1)
                difference = float((out_THd[start + row] - want).norm() / want.norm())
                worst = max(worst, difference if difference == difference else torch.inf)
            start += new
        return worst


@pytest.mark.cuda
@pytest.mark.parametrize(
    "shape",
    [
        {"requests": ((70, 70), (129, 1000), (64, 5001))},
        {"requests": ((300, 777), (65, 65)), "dim": 64},
        {"requests": ((150, 150), (99, 2049)), "heads": (28, 4)},
        {"requests": ((260, 900),), "heads": (4, 4), "block_tokens": 64},
        {"requests": ((130, 400),), "heads": (16, 1), "block_tokens": 256},
        {"requests": ((100, 300),), "heads": (8, 2), "block_tokens": 8},
    ],
    ids=["requests", "head of 64", "group of 7", "multi-head", "blocks of 256", "blocks of 8"],
)
def test_prompts_agree_with_float64(shape) -> None:
    prompts = Prompts(**shape)
    assert prompts.error(prompts.run()) < 8e-3


@pytest.mark.cuda
def test_a_token_has_the_same_bits_however_its_prompt_is_cut() -> None:
    prompts = Prompts(((700, 3000),))
    whole = prompts.run()
    for _ in range(10):
        assert torch.equal(prompts.run(), whole)
    for first, end in ((0, 333), (333, 500), (500, 700)):
        assert torch.equal(prompts.run(first, end), whole[first:end])


@pytest.mark.cuda
def test_a_block_outside_the_pool_makes_its_request_nan() -> None:
    prompts = Prompts(((100, 300), (100, 300)))
    prompts.table[0, 3] = len(prompts.caches[0])
    out = prompts.run()
    assert out[:100].isnan().all()
    assert out[100:].isfinite().all()
