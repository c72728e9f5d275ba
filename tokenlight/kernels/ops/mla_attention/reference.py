# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.mla_attention.contract import mla_attention


@mla_attention.implement("reference", device="any", rank=REFERENCE)
def reference(
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
    out_THC = torch.empty_like(q_THC, memory_format=torch.contiguous_format)
    starts, block_tokens, latent_dim = query_starts.tolist(), cache_B1PL.shape[2], q_THC.shape[2]
    for r, (kv_len, slot) in enumerate(zip(kv_lens.tolist(), slots.tolist(), strict=True)):
        rows = slice(starts[r], starts[r + 1])
        blocks = block_table[slot, : -(-kv_len // block_tokens)].long()
        if blocks.numel() and not 0 <= int(blocks.min()) <= int(blocks.max()) < len(cache_B1PL):
            raise IndexError(f"a block is outside the pool of {len(cache_B1PL)}")
        keys_SL = cache_B1PL[blocks, 0].flatten(0, 1)[:kv_len].float()
        latents_SC, rotated_Sr = keys_SL.split((latent_dim, keys_SL.shape[1] - latent_dim), dim=1)
        scores_HTS = torch.einsum("thc,sc->hts", q_THC[rows].float(), latents_SC)
        scores_HTS = scale * (
            scores_HTS + torch.einsum("thr,sr->hts", q_THr[rows].float(), rotated_Sr)
        )
        key_S = torch.arange(kv_len, device=q_THC.device)
        is_later_TS = key_S > key_S[kv_len - (starts[r + 1] - starts[r]) :, None]
        weights_HTS = scores_HTS.masked_fill(is_later_TS, -torch.inf).softmax(dim=-1)
        out_THC[rows] = torch.einsum("hts,sc->thc", weights_HTS, latents_SC).to(q_THC.dtype)
    return out_THC
