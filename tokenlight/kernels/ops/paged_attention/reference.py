# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.kv_rows import load_rows
from tokenlight.kernels.ops.paged_attention.contract import paged_attention


@paged_attention.implement("reference", device="any", rank=REFERENCE)
def reference(  # noqa: PLR0913 - the parts of a paged batch
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
    out_THd = torch.empty_like(q_THd, memory_format=torch.contiguous_format)
    starts = query_starts.tolist()
    for r, (kv_len, slot) in enumerate(zip(kv_lens.tolist(), slots.tolist(), strict=True)):
        q_HTd = q_THd[starts[r] : starts[r + 1]].float().transpose(0, 1)
        blocks = block_table[slot, : -(-kv_len // k_cache_BKPd.shape[2])]
        k_HLd = _gather(k_cache_BKPd, blocks, kv_len, q_HTd.shape[0])
        v_HLd = _gather(v_cache_BKPd, blocks, kv_len, q_HTd.shape[0])
        scores_HTL = q_HTd @ k_HLd.mT * scale
        if softcap:
            scores_HTL = softcap * (scores_HTL / softcap).tanh()
        key_L = torch.arange(kv_len, device=q_THd.device)
        query_T = key_L[kv_len - q_HTd.shape[1] :, None]
        hidden_TL = key_L > query_T
        if window:
            hidden_TL |= key_L <= query_T - window
        scores_HTL = scores_HTL.masked_fill(hidden_TL, -torch.inf)
        if sinks_H is not None:
            sinks_HT1 = sinks_H[:, None, None].expand(-1, q_HTd.shape[1], 1)
            scores_HTL = torch.cat([scores_HTL, sinks_HT1], dim=-1)
        weights_HTL = scores_HTL.softmax(dim=-1)[..., :kv_len]
        out_THd[starts[r] : starts[r + 1]] = (weights_HTL @ v_HLd).transpose(0, 1).to(q_THd.dtype)
    return out_THd


def _gather(cache_BKPd: Tensor, blocks: Tensor, kv_len: int, num_heads: int) -> Tensor:
    """A request's keys or values as float32 [H, L, d]."""
    if blocks.numel() and not 0 <= int(blocks.min()) <= int(blocks.max()) < len(cache_BKPd):
        raise IndexError(f"a block is outside the pool of {len(cache_BKPd)}")
    rows_KLd = load_rows(cache_BKPd[blocks.long()].transpose(0, 1).flatten(1, 2)[:, :kv_len])
    return rows_KLd.repeat_interleave(num_heads // rows_KLd.shape[0], dim=0)
