# SPDX-License-Identifier: Apache-2.0
"""What instructions over the paged cache have in common."""

from tokenlight.kernels import _cpu
from tokenlight.kernels.native import KV_TYPES
from tokenlight.kernels.native_call import NativeCall, NativeTensor


def paged_places(
    call: NativeCall, *, query_starts: int, block_table: int, slots: int, cache: NativeTensor
) -> _cpu.PagedPlaces:
    """Of the operands with these numbers."""
    places = (call.place(query_starts), call.place(block_table), call.place(slots))
    return _cpu.PagedPlaces(*places, cache.num_rows, cache.shape[1])


def kv_node(call: NativeCall, *, k: int, v: int, k_cache: int) -> _cpu.KvNode:
    """Of operands in the contracts' order: both caches, positions, query_starts, table, slots."""
    keys, values, cache = call.operand(k), call.operand(v), call.operand(k_cache)
    num_heads, head_dim = keys.shape
    starts = k_cache + 3
    return _cpu.KvNode(
        keys.place,
        values.place,
        cache.place,
        call.place(k_cache + 1),
        call.place(k_cache + 2),
        paged_places(
            call, query_starts=starts, block_table=starts + 1, slots=starts + 2, cache=cache
        ),
        KV_TYPES[cache.dtype],
        num_heads,
        head_dim,
        keys.strides[0],
        values.strides[0],
    )
