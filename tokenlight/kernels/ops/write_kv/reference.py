# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.kv_rows import store_rows
from tokenlight.kernels.ops.write_kv.contract import write_kv_


@write_kv_.implement("reference", device="any", rank=REFERENCE)
def reference(
    k_TKd: Tensor,
    v_TKd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    block_tokens = k_cache_BKPd.shape[2]
    counts = query_starts.diff().long()
    slot_T = slots.long().repeat_interleave(counts)
    positions_T = positions_T.long()
    blocks_T = block_table[slot_T, positions_T // block_tokens].long()
    if blocks_T.numel() and not 0 <= int(blocks_T.min()) <= int(blocks_T.max()) < len(k_cache_BKPd):
        raise IndexError(f"a block is outside the pool of {len(k_cache_BKPd)}")
    for cache, rows in ((k_cache_BKPd, k_TKd), (v_cache_BKPd, v_TKd)):
        if cache.dtype is torch.float8_e4m3fn:
            rows = rows.clamp(-448, 448)  # torch makes NaN of what is larger
        cache[blocks_T, :, positions_T % block_tokens] = store_rows(rows, cache.dtype)
