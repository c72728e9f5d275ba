# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, FLOAT_TYPES
from tokenlight.kernels.ops.mla_attention.contract import mla_attention
from tokenlight.kernels.ops.paged_attention.cpu import cpu as paged_attention


@mla_attention.implement("cpu", device="cpu", dtypes=F32, stored=FLOAT_TYPES, rank=TUNED)
def cpu(
    q_THC: Tensor,
    q_THr: Tensor,
    cache_B1PL: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    *,
    scale: float,
) -> Tensor:
    """All heads share one kv head, whose values are its keys; only their latents are kept."""
    if cache_B1PL.shape[1] != 1 or q_THr.shape[:2] != q_THC.shape[:2]:
        raise ValueError(
            f"queries {list(q_THC.shape)} and {list(q_THr.shape)} do not fit a cache of "
            f"{list(cache_B1PL.shape)}"
        )
    q_THL = torch.cat([q_THC, q_THr], dim=-1)
    out_THL = paged_attention(
        q_THL, cache_B1PL, cache_B1PL, query_starts, kv_lens, block_table, slots, scale=scale
    )
    return out_THL[..., : q_THC.shape[2]].contiguous()
