# SPDX-License-Identifier: Apache-2.0
"""How tensors and formats are told to the compiled CPU kernels."""

from math import prod

import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.formats.scaled import FP8
from tokenlight.kernels.formats.tile16 import TILE16

F32 = frozenset({torch.float32})

FLOAT_TYPES = {
    torch.float32: _cpu.FloatType.f32,
    torch.float16: _cpu.FloatType.f16,
    torch.bfloat16: _cpu.FloatType.bf16,
}

# What a cache of keys and values may be: see kv_rows.py.
KV_TYPES = {**FLOAT_TYPES, torch.int8: _cpu.FloatType.i8}

WEIGHT_FORMATS: dict[Format, _cpu.WeightFormat] = {
    f: _cpu.WeightFormat[f.name] for f in (*DENSE, *FP8, *TILE16.values())
}


def rows_of(x: Tensor) -> Tensor:
    """As a matrix of rows without gaps, in place where it is one."""
    rows = x.reshape(x.shape[0], prod(x.shape[1:]))
    return rows if rows.stride(1) == 1 else rows.contiguous()


def paged_batch(
    query_starts: Tensor, block_table: Tensor, slots: Tensor, num_tokens: int, cache_BKPd: Tensor
) -> _cpu.PagedBatch:
    """The addresses of a step's arrays, once they are known to be what the contract says."""
    int32 = torch.int32
    num_requests = slots.numel()
    num_slots, num_columns = block_table.shape
    if (
        query_starts.dtype is not int32
        or block_table.dtype is not int32
        or slots.dtype is not int32
        or query_starts.numel() != num_requests + 1
        or not query_starts.is_contiguous()
        or not slots.is_contiguous()
        or block_table.stride(1) != 1
        or not cache_BKPd.is_contiguous()
    ):
        raise ValueError(
            "query_starts (R + 1), slots (R) and block_table must be int32, the cache contiguous; "
            f"got {query_starts.dtype} {list(query_starts.shape)}, {slots.dtype} "
            f"{list(slots.shape)}, {block_table.dtype} {list(block_table.shape)}"
        )
    return _cpu.PagedBatch(
        query_starts.data_ptr(),
        block_table.data_ptr(),
        slots.data_ptr(),
        num_requests,
        num_slots,
        num_columns,
        block_table.stride(0),
        num_tokens,
        cache_BKPd.shape[0],
        cache_BKPd.shape[2],
    )
