# SPDX-License-Identifier: Apache-2.0
"""The tuned CUDA kernels of a decode step beside what memory allows, and attention beside its peer.

Run: python -m benchmarks.gpu_kernels [--fa3 PATH] [--json FILE] [--quick]

Each is compared with float64 before it is timed. Prints a table and BAR lines; --json keeps all.
`--fa3` names FlashAttention 3's library as vLLM's wheel has it, or a folder with it
(docs/performance.md: how to get it). It decodes the same keys and values, in turns with ours, and
is compared with float64 after. Without it `gqa_b8_32k_us`, whose bound it is, is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import gpu_fa3
from benchmarks.bars import Bar, report
from benchmarks.gpu_timing import (
    COPY_BYTES_PER_S,
    L2_BYTES,
    Timed,
    clocks,
    commit,
    relative_error,
    time_graph,
    time_in_turn,
)
from tokenlight.kernels import FORMATS
from tokenlight.kernels.ops.linear import cuda as linear
from tokenlight.kernels.ops.linear_add import cuda as linear_add
from tokenlight.kernels.ops.norm_linear import cuda as norm_linear
from tokenlight.kernels.ops.norm_linear_silu_mul import cuda as norm_linear_silu_mul
from tokenlight.kernels.ops.paged_attention import cuda as paged_attention
from tokenlight.kernels.ops.rope_write_kv import cuda as rope_write_kv
from tokenlight.kernels.ops.sample import cuda as sample
from tokenlight.kernels.ops.sample.reference import reference as sample_reference

# Qwen3-8B.
HIDDEN, QKV, ATTENTION, FEATURES, LAYERS = 4096, 6144, 4096, 12288, 36
HEADS, KV_HEADS, HEAD_DIM, BLOCK = 32, 8, 128, 64
VOCABULARY = 151_936
BF16 = FORMATS["bf16"]

BARS = [
    Bar("gemm_chain_m1", ">=", 0.95),
    Bar("gemm_chain_m4", ">=", 0.88),
    Bar("gemm_chain_m16", ">=", 0.88),
    Bar("gqa_b1_1k_us", "<=", 7),
    Bar("gqa_b1_4k_us", "<=", 9.5),
    Bar("gqa_b1_16k_us", "<=", 22),
    Bar("gqa_b1_32k_us", "<=", 38),
    # Where FA3 runs beside it, what that takes there and 3 %; this is from another day's 246 us.
    Bar(gpu_fa3.HELD, "<=", 246 * gpu_fa3.MARGIN),
    Bar("sampler_b1_us", "<=", 15),
    Bar("sampler_b16_us", "<=", 25),
]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    us: float
    floor_us: float
    """Bytes that must move, at the speed of a copy."""
    spread: float
    error: float

    def line(self) -> str:
        return (
            f"{self.name:<28} {self.us:9.2f} us  floor {self.floor_us:8.2f}  "
            f"{self.floor_us / self.us:6.1%}  spread {self.spread:5.1%}  error {self.error:.1e}"
        )


def measure(name: str, calls: list[Callable[[], object]], num_bytes: int, error: float) -> Figure:
    return told(name, time_graph(calls), num_bytes, error)


def told(name: str, timed: Timed, num_bytes: int, error: float) -> Figure:
    figure = Figure(name, timed.us, num_bytes / COPY_BYTES_PER_S * 1e6, timed.spread, error)
    print(figure.line(), flush=True)
    return figure


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def random_weight(n: int, k: int) -> Tensor:
    return random(n, k).mul_(k**-0.5)


@dataclass(frozen=True, slots=True)
class Layer:
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    gain: Tensor

    @classmethod
    def random(cls) -> Layer:
        return cls(
            random_weight(QKV, HIDDEN),
            random_weight(HIDDEN, ATTENTION),
            random_weight(2 * FEATURES, HIDDEN),
            random_weight(HIDDEN, FEATURES),
            1 + 0.1 * random(HIDDEN),
        )

    def num_bytes(self) -> int:
        return 2 * sum(w.numel() for w in (self.qkv, self.out, self.gate_up, self.down))

    def products(self, x: Tensor) -> Tensor:
        """The four matrices, nothing between them."""
        x = linear.cuda(x, self.qkv, None, format=BF16)[:, :ATTENTION]
        x = linear.cuda(x, self.out, None, format=BF16)
        x = linear.cuda(x, self.gate_up, None, format=BF16)[:, :FEATURES]
        return linear.cuda(x, self.down, None, format=BF16)

    def fused(self, x: Tensor) -> Tensor:
        """As a decode step runs them, attention left out."""
        some = norm_linear.cuda(x, self.gain, self.qkv, None, eps=1e-6, format=BF16)
        x = linear_add.cuda(some[:, :ATTENTION], self.out, None, x, format=BF16)
        some = norm_linear_silu_mul.cuda(x, self.gain, self.gate_up, None, eps=1e-6, format=BF16)
        return linear_add.cuda(some, self.down, None, x, format=BF16)


def products_error(layer: Layer, m: int) -> float:
    """The worst of the four products and what is fused around them, against float64."""
    x, features = random(m, HIDDEN), random(m, FEATURES)
    wide = x.double()
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * layer.gain.double()
    gate, up = (normed @ layer.gate_up.double().T).chunk(2, dim=-1)
    pairs = [
        (linear.cuda(x, layer.qkv, None, format=BF16), wide @ layer.qkv.double().T),
        (
            norm_linear.cuda(x, layer.gain, layer.qkv, None, eps=1e-6, format=BF16),
            normed @ layer.qkv.double().T,
        ),
        (
            linear_add.cuda(features, layer.down, None, x, format=BF16),
            features.double() @ layer.down.double().T + wide,
        ),
        (
            norm_linear_silu_mul.cuda(x, layer.gain, layer.gate_up, None, eps=1e-6, format=BF16),
            gate * gate.sigmoid() * up,
        ),
    ]
    return max(relative_error(got, want) for got, want in pairs)


def chains(layers: list[Layer]) -> Iterator[Figure]:
    num_bytes = sum(layer.num_bytes() for layer in layers)

    def run(step: str, x: Tensor) -> Tensor:
        for layer in layers:
            x = getattr(layer, step)(x)
        return x

    for m in (1, 2, 4, 8, 16):
        error = products_error(layers[0], m)
        x = random(m, HIDDEN)
        yield measure(f"gemm_chain_m{m}", [partial(run, "products", x)], num_bytes, error)
        yield measure(f"fused_chain_m{m}", [partial(run, "fused", x)], num_bytes, error)


@dataclass(frozen=True, slots=True)
class Paged:
    """Requests of one length over a pool of blocks in random order; what is not theirs is NaN."""

    k: Tensor
    v: Tensor
    query_starts: Tensor
    kv_lens: Tensor
    table: Tensor
    slots: Tensor

    @classmethod
    def random(cls, b: int, kv: int, q: int = 1) -> Paged:
        columns = -(-kv // BLOCK)
        shape = (b * columns, KV_HEADS, BLOCK, HEAD_DIM)
        k, v = random(*shape), random(*shape)
        table = torch.randperm(b * columns, device="cuda").int().view(b, columns)
        if kv % BLOCK:
            k[table[:, -1].long(), :, kv % BLOCK :] = torch.nan
            v[table[:, -1].long(), :, kv % BLOCK :] = torch.nan
        starts = torch.arange(b + 1, device="cuda", dtype=torch.int32) * q
        lens = torch.full((b,), kv, device="cuda", dtype=torch.int32)
        return cls(k, v, starts, lens, table, torch.arange(b, device="cuda", dtype=torch.int32))

    def attend(self, q: Tensor) -> Tensor:
        return paged_attention.attend(
            q, self.k, self.v, self.query_starts, self.kv_lens, self.table, self.slots,
            scale=HEAD_DIM**-0.5,
        )  # fmt: skip

    def by_fa3(self, q: Tensor, *, is_copied: bool) -> Callable[[], Tensor]:
        """The peer's call over these blocks; or over a copy with a token's heads side by side."""
        k, v = (cache.transpose(1, 2) for cache in (self.k, self.v))
        if is_copied:
            k, v = k.contiguous(), v.contiguous()
        return gpu_fa3.decode(
            q, k, v, self.query_starts, self.kv_lens, self.table,
            max_kv_tokens=int(self.kv_lens[0]), scale=HEAD_DIM**-0.5,
        )  # fmt: skip

    def error(self, q: Tensor, got: Tensor) -> float:
        """Of the last request's rows of a result, in float64."""
        kv = int(self.kv_lens[-1])
        n = q.shape[0] // len(self.slots)
        k, v = (
            c[self.table[-1].long()].transpose(0, 1).flatten(1, 2)[:, :kv].double()
            for c in (self.k, self.v)
        )
        group = HEADS // KV_HEADS
        rows = q[-n:].double().view(n, KV_HEADS, group, HEAD_DIM).permute(1, 0, 2, 3)
        scores = torch.einsum("knhd,kld->knhl", rows, k) * HEAD_DIM**-0.5
        seen = (
            torch.arange(kv, device="cuda")[None]
            <= kv - n + torch.arange(n, device="cuda")[:, None]
        )
        weights = scores.masked_fill(~seen[None, :, None], -torch.inf).softmax(-1)
        want = torch.einsum("knhl,kld->knhd", weights, v).permute(1, 0, 2, 3).flatten(1, 2)
        return relative_error(got[-n:], want)


def attention(shapes: dict[str, tuple[int, int, int]], *, has_peer: bool) -> Iterator[Figure]:
    for name, (b, kv, n) in shapes.items():
        num_bytes = 4 * b * kv * KV_HEADS * HEAD_DIM
        copies = max(4, -(-3 * L2_BYTES // num_bytes))
        batches = [Paged.random(b, kv, n) for _ in range(copies)]
        q = random(b * n, HEADS, HEAD_DIM)
        calls: list[Callable[[], object]] = [partial(batch.attend, q) for batch in batches]
        error = batches[0].error(q, batches[0].attend(q))
        if has_peer and name in BESIDE_PEER:
            yield from beside_fa3(name, batches, q, num_bytes, error)
        else:
            yield measure(name, calls, num_bytes, error)


def beside_fa3(
    name: str, batches: list[Paged], q: Tensor, num_bytes: int, error: float
) -> Iterator[Figure]:
    """Ours, and the peer in the layout that it is faster with: pools as ours are, or its own."""
    ours: list[Callable[[], object]] = [partial(batch.attend, q) for batch in batches]
    try:
        peers = [[batch.by_fa3(q, is_copied=own) for batch in batches] for own in (False, True)]
        mine, *theirs = time_in_turn([ours, *peers])
    except RuntimeError as fault:
        print(f"  FA3 did not run beside ours at {name}: {str(fault).splitlines()[0]}")
        yield measure(name, ours, num_bytes, error)
        return
    yield told(name, mine, num_bytes, error)
    best: Figure | None = None
    for layout, calls, timed in zip(("as ours", "its own"), peers, theirs, strict=True):
        # After so many replays: what it keeps between calls must have been left as it was.
        its_error = max(batches[0].error(q, calls[0]()), batches[-1].error(q, calls[-1]()))
        figure = told(f"  FA3, blocks {layout}", timed, num_bytes, its_error)
        if its_error <= MOST_ERROR and (best is None or figure.us < best.us):
            best = replace(figure, name=gpu_fa3.peer_name(name))
    if best is None:
        print(f"  FA3 is wrong at {name}, and is no peer")
    else:
        yield best


def rope(b: int) -> Figure:
    batch = Paged.random(b, 512)
    qkv = [random(b, HEADS + 2 * KV_HEADS, HEAD_DIM) for _ in range(20)]
    angles = torch.rand(b, HEAD_DIM // 2, device="cuda")
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=-1)
    gain = 1 + 0.1 * random(HEAD_DIM)
    positions = batch.kv_lens - 1

    def call(x: Tensor) -> None:
        q, k, v = x.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        rope_write_kv.cuda(
            q, k, v, cos_sin, batch.k, batch.v, positions, batch.query_starts, batch.table,
            batch.slots, gain, gain, eps=1e-6,
        )  # fmt: skip

    return measure(f"rope_write_kv_b{b}", [partial(call, x) for x in qkv], 4 * qkv[0].numel(), 0.0)


def sampler(b: int) -> Figure:
    logits = [2 * torch.randn(b, VOCABULARY, device="cuda") for _ in range(max(8, 320 // b))]
    columns = (
        torch.full((b,), 0.8, device="cuda"),
        torch.full((b,), 50, device="cuda", dtype=torch.int32),
        torch.full((b,), 0.95, device="cuda"),
        torch.zeros(b, device="cuda"),
        torch.arange(b, device="cuda") + 7,
        torch.arange(b, device="cuda", dtype=torch.int32) + 100,
    )
    differ = sum(
        int((sample.cuda(x, *columns) != sample_reference(x, *columns)).sum()) for x in logits[:8]
    )
    calls: list[Callable[[], object]] = [partial(sample.cuda, x, *columns) for x in logits]
    return measure(f"sampler_b{b}", calls, 4 * b * VOCABULARY, differ / (8 * b))


SHAPES = {
    "gqa_b1_1k": (1, 1024, 1),
    "gqa_b1_4k": (1, 4096, 1),
    "gqa_b1_16k": (1, 16384, 1),
    "gqa_b1_32k": (1, 32768, 1),
    "gqa_b1_50k": (1, 50_000, 1),
    "gqa_b4_50k": (4, 50_000, 1),
    "gqa_b8_32k": (8, 32768, 1),
    "gqa_b16_512": (16, 512, 1),
    "gqa_b4_50k_q4": (4, 50_000, 4),
    "gqa_b1_50k_q8": (1, 50_000, 8),
}
BESIDE_PEER = {name for name, (_, kv, n) in SHAPES.items() if n == 1 and kv > 512}
MOST_ERROR = 0.01
"""Of a peer that is worth a comparison; both round weights and sums to bfloat16."""


def find_peer(path: Path | None) -> bool:
    """Whether the peer is there; says why not."""
    if path is None:
        print("FA3: none (--fa3 names its library)")
        return False
    try:
        gpu_fa3.load(path)
    except gpu_fa3.NoPeer as fault:
        print(f"FA3: none ({fault})")
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer layers and lengths")
    parser.add_argument("--json", type=Path, help="where to keep every figure")
    parser.add_argument("--fa3", type=Path, help="FA3's library, or a folder that has it")
    args = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        print("the CUDA kernels want a device of compute capability 9.0")
        return 1
    torch.manual_seed(1)
    print(f"commit {commit()}, {clocks()}")
    has_peer = find_peer(args.fa3)
    layers = [Layer.random() for _ in range(4 if args.quick else LAYERS)]
    figures = list(chains(layers))
    layers.clear()
    shapes = dict(list(SHAPES.items())[:4]) if args.quick else SHAPES
    figures += attention(shapes, has_peer=has_peer)
    figures += [rope(1), rope(16), sampler(1), sampler(16)]
    print(clocks())
    measured = {f.name: f.floor_us / f.us for f in figures if f.name.startswith("gemm_chain")}
    measured |= {f"{f.name}_us": f.us for f in figures}
    if args.json:
        every = {f.name: {"us": f.us, "floor_us": f.floor_us, "error": f.error} for f in figures}
        args.json.write_text(json.dumps({"measured": measured, "figures": every}, indent=1))
    return report(*gpu_fa3.beside_peer(BARS, measured))


if __name__ == "__main__":
    sys.exit(main())
