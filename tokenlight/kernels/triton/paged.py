# SPDX-License-Identifier: Apache-2.0
"""How Triton kernels find a token's request and its row of a paged cache."""

import triton
import triton.language as tl

TABLE_SIZES = ["table_stride", "num_slots", "num_columns", "num_blocks"]
"""What no kernel is compiled anew for: these are other numbers in another pool or batch."""


@triton.jit
def find_owner(starts, num_owners, item, per_unit, BLOCK: tl.constexpr):
    """Which owner has the `item`-th unit of `per_unit` tokens, and the first unit of that owner.

    Owner i has tokens starts[i] to starts[i + 1], cut into units of its own. The owner is
    `num_owners` where there are no more than `item` units in all.
    """
    owner = 0
    first = 0
    num_units = 0
    for base in range(0, num_owners, BLOCK):
        i = base + tl.arange(0, BLOCK)
        is_owner = i < num_owners
        start = tl.load(starts + i, mask=is_owner, other=0)
        stop = tl.load(starts + i + 1, mask=is_owner, other=0)
        units = (stop - start + per_unit - 1) // per_unit
        ends = num_units + tl.cumsum(units, 0)
        is_before = is_owner & (ends <= item)
        owner += tl.sum(is_before.to(tl.int32), 0)
        first = tl.maximum(first, tl.max(tl.where(is_before, ends, 0), 0))
        num_units += tl.sum(units, 0)
    return owner, first


@triton.jit
def cache_row(
    block_table, slot, position, is_wanted, table_stride, num_slots, num_columns, num_blocks,
    num_heads, block_tokens, head,
):  # fmt: skip
    """The row of a cache [B K P, d] with a position of a slot; -1 where an index is outside."""
    column = position // block_tokens
    num_listed = tl.where((slot >= 0) & (slot < num_slots), num_columns, 0)
    is_listed = is_wanted & (position >= 0) & (column < num_listed)
    place = slot.to(tl.int64) * table_stride + column
    block = tl.load(block_table + place, mask=is_listed, other=-1)
    row = (block.to(tl.int64) * num_heads + head) * block_tokens + position % block_tokens
    return tl.where((block >= 0) & (block < num_blocks), row, -1)


@triton.jit
def to_cache(x, cache):
    """Numbers as a cache keeps them; float8 takes the nearest that it has, 448 at most."""
    if cache.dtype.element_ty == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -448.0), 448.0)
    return x.to(cache.dtype.element_ty)
