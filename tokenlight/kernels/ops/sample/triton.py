# SPDX-License-Identifier: Apache-2.0
"""Sampling in Triton without sorting the vocabulary.

Three launches. `_block_maxima` finds the largest logit of each block. `_count` puts each token in
a bucket by how far its logit is below the row's largest, and counts tokens and weights per bucket.
`_choose`, one program per row, walks the buckets to the one that holds a boundary (of top_k, of
top_p, of the draw), and orders only that one's tokens.

Weights are integers, exp((logit - max) / temperature) * 2^40: their sums are exact, so they do not
depend on the order in which they are added. Buckets are in float32 and steps of a 32nd: what
matters of them is that they fall with the logit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.sample.contract import sample

_BLOCK = 4096
_BUCKETS = tl.constexpr(2048)
_PER_UNIT = tl.constexpr(32.0)
_ONE = tl.constexpr(float(1 << 40))
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_A = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_B = tl.constexpr(0x94D049BB133111EB)


@sample.implement("triton", device="cuda", dtypes={torch.float32}, rank=PORTABLE)
def run(
    logits_SV: Tensor,
    temperature_S: Tensor,
    top_k_S: Tensor,
    top_p_S: Tensor,
    min_p_S: Tensor,
    seeds_S: Tensor,
    positions_S: Tensor,
) -> Tensor:
    num_rows, vocabulary = logits_SV.shape
    device = logits_SV.device
    ids_S = torch.empty(num_rows, dtype=torch.int32, device=device)
    if not num_rows:
        return ids_S
    if not vocabulary:
        raise ValueError("cannot sample from an empty vocabulary")
    num_blocks = triton.cdiv(vocabulary, _BLOCK)
    blocks = (num_rows, num_blocks)
    maxima_SB = torch.empty(blocks, dtype=torch.float32, device=device)
    winners_SB = torch.empty(blocks, dtype=torch.int32, device=device)
    # Per row and bucket: tokens, and their weight.
    sums = torch.zeros(num_rows, 2, _BUCKETS.value, dtype=torch.int64, device=device)
    bucket_ids_SV = torch.empty(num_rows, vocabulary, dtype=torch.int32, device=device)
    logits = (logits_SV, logits_SV.stride(0), vocabulary)
    found = (maxima_SB, winners_SB, num_blocks)
    wide = triton.next_power_of_2(num_blocks)
    _block_maxima[blocks](*logits, *found, BLOCK=_BLOCK, num_warps=8)
    _count[blocks](*logits, *found, temperature_S, sums, BLOCK=_BLOCK, WIDE=wide, num_warps=8)
    _choose[(num_rows,)](
        *(ids_S, *logits, *found, temperature_S, top_k_S, top_p_S, min_p_S, seeds_S, positions_S),
        *(sums, bucket_ids_SV),
        BLOCK=_BLOCK,
        WIDE=wide,
        num_warps=16,
    )
    return ids_S


@triton.jit
def _load(logits, first, vocabulary, BLOCK: tl.constexpr):
    """Ids from `first` on, whether they exist, and their logits; NaN is minus infinity."""
    id = first + tl.arange(0, BLOCK)
    x = tl.load(logits + id, mask=id < vocabulary, other=float("-inf"))
    return id, id < vocabulary, tl.where(x == x, x, float("-inf"))


@triton.jit
def _block_maxima(
    logits, stride, vocabulary, maxima, winners, num_blocks, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    id, is_token, x = _load(logits + row * stride, block * BLOCK, vocabulary, BLOCK)
    largest = tl.max(x, 0)
    winner = tl.min(tl.where(is_token & (x == largest), id, vocabulary), 0)
    tl.store(maxima + row * num_blocks + block, largest)
    tl.store(winners + row * num_blocks + block, winner)


@triton.jit
def _largest(maxima, winners, num_blocks, WIDE: tl.constexpr):
    """A row's largest logit and the lowest id that has it."""
    block = tl.arange(0, WIDE)
    x = tl.load(maxima + block, mask=block < num_blocks, other=float("-inf"))
    largest = tl.max(x, 0)
    winner = tl.load(winners + block, mask=block < num_blocks, other=2147483647)
    return largest, tl.min(tl.where(x == largest, winner, 2147483647), 0)


@triton.jit
def _bucket(x, largest, temperature):
    steps = (largest - x) * (_PER_UNIT / tl.maximum(temperature, 1e-30))
    return tl.minimum(steps, _BUCKETS - 1.0).to(tl.int32)


@triton.jit
def _weight(x, largest, temperature):
    """exp((x - largest) / temperature), in float64 and as a whole number of 2^-40."""
    z = (x.to(tl.float64) - largest.to(tl.float64)) / temperature.to(tl.float64)
    # Below the reach of the buckets all weights are 0 and their order does not matter.
    weight = tl.exp(tl.maximum(z, -80.0))
    return weight, (weight * _ONE + 0.5).to(tl.int64)


@triton.jit
def _count(
    logits, stride, vocabulary, maxima, winners, num_blocks, temperatures, sums,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    block = row * num_blocks
    largest, _ = _largest(maxima + block, winners + block, num_blocks, WIDE)
    if (temperature == 0) | (tl.abs(largest) == float("inf")):
        return
    _, is_token, x = _load(
        logits + row * stride, tl.program_id(1) * BLOCK, vocabulary, BLOCK
    )  # fmt: skip
    bucket = _bucket(x, largest, temperature)
    _, weight = _weight(x, largest, temperature)
    place = sums + row * 2 * _BUCKETS + bucket
    # Whole numbers: the order of additions does not show.
    tl.atomic_add(place, tl.full([BLOCK], 1, tl.int64), mask=is_token, sem="relaxed")
    tl.atomic_add(place + _BUCKETS, weight, mask=is_token & (weight > 0), sem="relaxed")


@triton.jit
def _key(x):
    """An int32 that orders as the logit does; equal logits, 0.0 and -0.0 too, have equal keys."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _reach(
    goal, IS_COUNT: tl.constexpr, logits, vocabulary, largest, temperature, sums, ids,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The first token, in falling order, with which the running sum is at least `goal`.

    Sums are of ones (`IS_COUNT`) or of weights; the goal is above 0 and at most the sum of all.
    Returns the token's id, and the weight up to it and with it.
    """
    b = tl.arange(0, _BUCKETS)
    counts = tl.load(sums + b)
    weights = tl.load(sums + _BUCKETS + b)
    values = counts if IS_COUNT else weights
    ends = tl.cumsum(values, 0)
    bucket = tl.sum((ends < goal).to(tl.int32), 0)
    rest = goal - tl.sum(tl.where(b < bucket, values, 0), 0)
    weight_before = tl.sum(tl.where(b < bucket, weights, 0), 0)

    # The bucket's tokens, in order of id, and the range of their keys.
    num_ids = tl.full([], 0, tl.int32)
    low = tl.full([], 2147483647, tl.int32)
    high = tl.full([], -2147483648, tl.int32)
    for first in range(0, vocabulary, BLOCK):
        id, is_token, x = _load(logits, first, vocabulary, BLOCK)
        is_in = is_token & (_bucket(x, largest, temperature) == bucket)
        ends_in = tl.cumsum(is_in.to(tl.int32), 0)
        tl.store(ids + num_ids + ends_in - 1, id, mask=is_in)
        num_ids += tl.sum(is_in.to(tl.int32), 0)
        low = tl.minimum(low, tl.min(tl.where(is_in, _key(x), 2147483647), 0))
        high = tl.maximum(high, tl.max(tl.where(is_in, _key(x), -2147483648), 0))
    tl.debug_barrier()

    # The largest key such that the tokens from it up reach the rest.
    while low < high:
        middle = (low.to(tl.int64) + high.to(tl.int64) + 1) >> 1
        middle = middle.to(tl.int32)
        reached, _, _ = _above(
            middle, IS_COUNT, logits, largest, temperature, ids, num_ids, BLOCK
        )  # fmt: skip
        low = tl.where(reached >= rest, middle, low)
        high = tl.where(reached >= rest, high, middle - 1)

    # Of the tokens with that key, which all have one weight, as many as it takes, lowest id first.
    with_equals, weight_with_equals, num_equals = _above(
        low, IS_COUNT, logits, largest, temperature, ids, num_ids, BLOCK
    )  # fmt: skip
    _, weight_of_low = _weight(_logit(low), largest, temperature)
    each = tl.where(IS_COUNT, 1, weight_of_low)
    above = with_equals - num_equals * each
    taken = (rest - above + each - 1) // tl.maximum(each, 1)
    found = _nth_equal(low, taken, logits, ids, num_ids, BLOCK)
    weight_above = weight_with_equals - num_equals * weight_of_low
    return found, weight_before + weight_above + taken * weight_of_low


@triton.jit
def _logit(key):
    """The inverse of `_key`."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _above(
    key, IS_COUNT: tl.constexpr, logits, largest, temperature, ids, num_ids, BLOCK: tl.constexpr
):  # fmt: skip
    """Of listed tokens with at least this key: sum of ones or weights, weights, count of equals."""
    num = tl.zeros([], tl.int64)
    weight = tl.zeros([], tl.int64)
    num_equals = tl.zeros([], tl.int64)
    for first in range(0, num_ids, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(logits + tl.load(ids + i, mask=i < num_ids, other=0))
        x = tl.where(x == x, x, float("-inf"))
        is_in = (i < num_ids) & (_key(x) >= key)
        _, weights = _weight(x, largest, temperature)
        num += tl.sum(is_in.to(tl.int64), 0)
        weight += tl.sum(tl.where(is_in, weights, 0), 0)
        num_equals += tl.sum((is_in & (_key(x) == key)).to(tl.int64), 0)
    return num if IS_COUNT else weight, weight, num_equals


@triton.jit
def _nth_equal(key, n, logits, ids, num_ids, BLOCK: tl.constexpr):
    """The n-th listed id, from 1, whose logit has this key."""
    found = -1
    seen = tl.zeros([], tl.int64)
    for first in range(0, num_ids, BLOCK):
        i = first + tl.arange(0, BLOCK)
        id = tl.load(ids + i, mask=i < num_ids, other=0)
        x = tl.load(logits + id)
        x = tl.where(x == x, x, float("-inf"))
        is_equal = (i < num_ids) & (_key(x) == key)
        rank = seen + tl.cumsum(is_equal.to(tl.int64), 0)
        found = tl.maximum(found, tl.max(tl.where(is_equal & (rank == n), id, -1), 0))
        seen += tl.sum(is_equal.to(tl.int64), 0)
    return found


@triton.jit
def _mix(z):
    """SplitMix64's finaliser."""
    z = (z ^ (z >> 30)) * _MIX_A
    z = (z ^ (z >> 27)) * _MIX_B
    return z ^ (z >> 31)


@triton.jit
def _uniform(seed, position):
    z = _mix(_mix(seed.to(tl.uint64)) + position.to(tl.uint64) * _GOLDEN)
    return (z >> 11).to(tl.float64) * (1.0 / 9007199254740992.0)


@triton.jit
def _weight_from(min_p, logits, vocabulary, largest, temperature, BLOCK: tl.constexpr):
    """The weight of all tokens whose own is at least `min_p` of the first's."""
    total = tl.zeros([], tl.int64)
    for first in range(0, vocabulary, BLOCK):
        _, is_token, x = _load(logits, first, vocabulary, BLOCK)
        weight, whole = _weight(x, largest, temperature)
        total += tl.sum(tl.where(is_token & (weight >= min_p.to(tl.float64)), whole, 0), 0)
    return total


@triton.jit
def _choose(
    out, logits, stride, vocabulary, maxima, winners, num_blocks,
    temperatures, top_ks, top_ps, min_ps, seeds, positions, sums, ids,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = row * num_blocks
    temperature = tl.load(temperatures + row)
    largest, winner = _largest(maxima + block, winners + block, num_blocks, WIDE)
    if (temperature == 0) | (tl.abs(largest) == float("inf")):
        tl.store(out + row, winner)
        return
    logits += row * stride
    sums += row * 2 * _BUCKETS
    ids += row * vocabulary
    top_k = tl.load(top_ks + row).to(tl.int64)
    top_p = tl.load(top_ps + row).to(tl.float64)
    min_p = tl.load(min_ps + row)
    total = tl.sum(tl.load(sums + _BUCKETS + tl.arange(0, _BUCKETS)), 0)
    if (top_k > 0) & (top_k < vocabulary):
        _, total = _reach(
            top_k, True, logits, vocabulary, largest, temperature, sums, ids, BLOCK
        )  # fmt: skip
    if top_p < 1:
        goal = tl.ceil(top_p * total.to(tl.float64)).to(tl.int64)
        goal = tl.minimum(tl.maximum(goal, 1), total)
        _, total = _reach(
            goal, False, logits, vocabulary, largest, temperature, sums, ids, BLOCK
        )  # fmt: skip
    if min_p > 0:
        kept = _weight_from(min_p, logits, vocabulary, largest, temperature, BLOCK)
        total = tl.minimum(total, tl.maximum(kept, 1))
    u = _uniform(tl.load(seeds + row), tl.load(positions + row))
    goal = tl.minimum((u * total.to(tl.float64)).to(tl.int64) + 1, total)
    chosen, _ = _reach(
        goal, False, logits, vocabulary, largest, temperature, sums, ids, BLOCK
    )  # fmt: skip
    tl.store(out + row, chosen)
