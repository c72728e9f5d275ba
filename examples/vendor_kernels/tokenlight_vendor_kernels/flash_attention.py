# SPDX-License-Identifier: Apache-2.0
"""`paged_attention` by FlashAttention 3: `flash_attn_interface`, built from its `hopper` folder."""

import torch
from flash_attn_interface import flash_attn_with_kvcache
from torch import Tensor

from tokenlight import kernels
from tokenlight.kernels.cuda import portable
from tokenlight_vendor_kernels import RANK

HALVES = (torch.float16, torch.bfloat16)


def register() -> None:
    """What the entry point names. A row's sums are split by how many requests there are."""
    for name, dtype in zip(("flash_attention_f16", "flash_attention"), HALVES, strict=True):
        kernels.paged_attention.implement(
            name,
            device="cuda",
            needs={"sm90"},
            dtypes={dtype},
            stored={dtype},
            rank=RANK,
            is_row_invariant=False,
        )(attend)


def attend(  # noqa: PLR0913 - the contract's
    q_THd: Tensor,
    k_cache_BKPd: Tensor,
    v_cache_BKPd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    block_table: Tensor,
    slots: Tensor,
    sinks_H: Tensor | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Keep the contract: `kernels.paged_attention`'s docstring. Sinks go to a portable kernel."""
    if sinks_H is not None:
        batch = (q_THd, k_cache_BKPd, v_cache_BKPd, query_starts, kv_lens, block_table, slots)
        options = {"scale": scale, "window": window, "softcap": softcap}
        run = portable(kernels.paged_attention, *batch, sinks_H, **options)
        return run(*batch, sinks_H, **options)
    num_tokens = q_THd.shape[0]
    if not num_tokens or not len(slots):
        return torch.empty_like(q_THd, memory_format=torch.contiguous_format)
    out_THd: Tensor = flash_attn_with_kvcache(
        q_THd,
        # It wants tokens before heads, and reads them by strides.
        k_cache_BKPd.transpose(1, 2),
        v_cache_BKPd.transpose(1, 2),
        cache_seqlens=kv_lens,
        page_table=block_table.index_select(0, slots),
        cu_seqlens_q=query_starts,
        # Lengths are on the device; this is the most that one request may have beside the others.
        max_seqlen_q=num_tokens - len(slots) + 1,
        softmax_scale=scale,
        causal=True,
        window_size=(window - 1, 0) if window else (-1, -1),
        softcap=softcap,
    )
    return out_THd
