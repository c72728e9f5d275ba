# SPDX-License-Identifier: Apache-2.0
"""The peer of the decode attention: FlashAttention 3, as the wheel of vLLM carries it compiled.

The library is one file of that wheel. It needs neither vLLM nor its packages, but the torch and the
CUDA that it was built for (0.22.1: torch 2.11, CUDA 13). docs/performance.md says how to get it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.bars import Bar

LIBRARY = "_vllm_fa3_C*.so"
HELD = "gqa_b8_32k_us"
"""The bar whose bound is what the peer takes in the same run, and MARGIN."""
MARGIN = 1.03


class NoPeer(Exception):
    """FA3 is not there, or not for this torch; says which."""


def peer_name(name: str) -> str:
    """Of the peer's figure beside one of ours."""
    return f"fa3_{name}"


def beside_peer(
    bars: list[Bar], measured: dict[str, float]
) -> tuple[list[Bar], dict[str, float], dict[str, str]]:
    """Bars, figures and what is missing, for `report`: HELD is nothing without its peer."""
    theirs_us, ours_us = measured.get(peer_name(HELD)), measured.get(HELD)
    if theirs_us is not None:
        bound_us = MARGIN * theirs_us
        bars = [replace(bar, required=bound_us) if bar.name == HELD else bar for bar in bars]
        return bars, measured, {}
    if ours_us is None:
        return bars, measured, {}
    why = (
        f"no peer: FA3 did not run beside our {ours_us:.4g} us; see --fa3 of benchmarks.gpu_kernels"
    )
    return bars, {name: us for name, us in measured.items() if name != HELD}, {HELD: why}


def load(path: Path) -> None:
    """Bind the operators of the library: `path` is the file, or a folder with it somewhere below.

    Raises:
        NoPeer: nothing of that name is there, or the loader refuses it.
    """
    files = [path] if path.is_file() else sorted(path.rglob(LIBRARY))
    if not files:
        raise NoPeer(f"no {LIBRARY} in {path}")
    try:
        torch.ops.load_library(str(files[0]))
    except OSError as fault:
        raise NoPeer(f"{files[0]}: {fault}") from fault


def decode(
    q_THd: Tensor,
    k_BtKd: Tensor,
    v_BtKd: Tensor,
    query_starts: Tensor,
    kv_lens: Tensor,
    table: Tensor,
    *,
    max_kv_tokens: int,
    scale: float,
) -> Callable[[], Tensor]:
    """A call of the peer over blocks of t tokens; how it divides its work is settled beforehand.

    An engine settles that once a step, for all layers, so it is not part of a layer's time.
    """
    num_requests = len(kv_lens)
    num_queries = len(q_THd) // num_requests
    block_tokens, num_kv_heads, head_dim = k_BtKd.shape[1:]
    fa3 = torch.ops._vllm_fa3_C
    alike = {
        "cu_seqlens_q": query_starts,
        "cu_seqlens_k": None,
        "cu_seqlens_k_new": None,
        "seqused_q": None,
        "seqused_k": kv_lens,
        "max_seqlen_q": num_queries,
        "max_seqlen_k": max_kv_tokens,
        "leftpad_k": None,
        "is_causal": True,
        "window_size_left": -1,
        "window_size_right": -1,
        "num_splits": 0,
        "pack_gqa": None,
        "sm_margin": 0,
    }
    metadata = fa3.get_scheduler_metadata(
        batch_size=num_requests,
        num_heads=q_THd.shape[1],
        num_heads_k=num_kv_heads,
        headdim=head_dim,
        headdim_v=head_dim,
        qkv_dtype=q_THd.dtype,
        page_size=block_tokens,
        max_seqlen_k_new=0,
        has_softcap=False,
        **alike,
    )
    absent = ("k_new", "v_new", "q_v", "out", "kv_batch_idx", "rotary_cos", "rotary_sin")
    absent += ("seqlens_rotary", "q_descale", "k_descale", "v_descale", "s_aux", "cp_tot_seqused_k")

    def call() -> Tensor:
        results: list[Tensor] = fa3.fwd(
            q=q_THd,
            k=k_BtKd,
            v=v_BtKd,
            page_table=table,
            softmax_scale=scale,
            softcap=0.0,
            is_rotary_interleaved=True,
            scheduler_metadata=metadata,
            cp_world_size=1,
            cp_rank=0,
            **alike,
            **dict.fromkeys(absent),
        )
        return results[0]

    return call
