# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.write_latent.contract import write_latent_


@write_latent_.implement("reference", device="any", rank=REFERENCE)
def reference(
    latent_TC: Tensor,
    rotated_T1r: Tensor,
    cache_B1PL: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    block_tokens = cache_B1PL.shape[2]
    slot_T = slots.long().repeat_interleave(query_starts.diff().long())
    positions_T = positions_T.long()
    blocks_T = block_table[slot_T, positions_T // block_tokens].long()
    if blocks_T.numel() and not 0 <= int(blocks_T.min()) <= int(blocks_T.max()) < len(cache_B1PL):
        raise IndexError(f"a block is outside the pool of {len(cache_B1PL)}")
    rows_TL = torch.cat([latent_TC, rotated_T1r[:, 0]], dim=-1)
    cache_B1PL[blocks_T, 0, positions_T % block_tokens] = rows_TL.to(cache_B1PL.dtype)
