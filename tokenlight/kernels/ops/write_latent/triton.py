# SPDX-License-Identifier: Apache-2.0
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.write_latent.contract import write_latent_
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.paged import TABLE_SIZES, cache_row, find_owner


@write_latent_.implement("triton", device="cuda", dtypes=FLOATS, stored=FLOATS, rank=PORTABLE)
def run(
    latent_TC: Tensor,
    rotated_T1r: Tensor,
    cache_B1PL: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    num_tokens, latent_dim = latent_TC.shape
    if num_tokens and len(slots):
        _write[(num_tokens,)](
            *(latent_TC, rotated_T1r, cache_B1PL, positions_T, query_starts, block_table, slots),
            *(len(slots), latent_TC.stride(0), rotated_T1r.stride(0), block_table.stride(0)),
            *(*block_table.shape, cache_B1PL.shape[0], cache_B1PL.shape[2]),
            *(latent_dim, rotated_T1r.shape[2]),
            BLOCK=triton.next_power_of_2(cache_B1PL.shape[3]),
        )


@triton.jit(do_not_specialize=["num_requests", *TABLE_SIZES])
def _write(
    latent, rotated, cache, positions, query_starts, block_table, slots, num_requests,
    latent_stride, rotated_stride, table_stride, num_slots, num_columns, num_blocks, block_tokens,
    latent_dim, rotated_dim, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    request, _ = find_owner(query_starts, num_requests, token, 1, 128)
    slot = tl.load(slots + request, mask=request < num_requests, other=-1)
    row = cache_row(
        block_table, slot, tl.load(positions + token), request < num_requests, table_stride,
        num_slots, num_columns, num_blocks, 1, block_tokens, 0,
    )  # fmt: skip
    i = tl.arange(0, BLOCK)
    is_latent = i < latent_dim
    width = latent_dim + rotated_dim
    wide = token.to(tl.int64)
    a = tl.load(latent + wide * latent_stride + i, mask=is_latent, other=0.0)
    b = tl.load(
        rotated + wide * rotated_stride + i - latent_dim,
        mask=(i >= latent_dim) & (i < width),
        other=0.0,
    )
    kept = tl.where(is_latent, a, b).to(cache.dtype.element_ty)
    tl.store(cache + row * width + i, kept, mask=i < tl.where(row >= 0, width, 0))
