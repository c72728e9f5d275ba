# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import Source, portable
from tokenlight.kernels.ops.sample.contract import sample

_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_SHARED_BYTES = 227 * 1024
_STATE_BYTES = 49_008
_SLICE_TOKENS = (_SHARED_BYTES - _STATE_BYTES) // 4
MAX_VOCABULARY = 8 * _SLICE_TOKENS


class _Params(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "temperature", "top_k", "top_p")),
        *((name, ctypes.c_void_p) for name in ("min_p", "seeds", "positions", "ids")),
        *((name, ctypes.c_int) for name in ("vocabulary", "stride", "slice")),
    )


@sample.implement("cuda", device="cuda", needs={"sm90"}, dtypes={torch.float32}, rank=TUNED)
def cuda(
    logits_SV: Tensor,
    temperature_S: Tensor,
    top_k_S: Tensor,
    top_p_S: Tensor,
    min_p_S: Tensor,
    seeds_S: Tensor,
    positions_S: Tensor,
) -> Tensor:
    num_rows, vocabulary = logits_SV.shape
    columns = (temperature_S, top_k_S, top_p_S, min_p_S, seeds_S, positions_S)
    if not 0 < vocabulary <= MAX_VOCABULARY:
        return portable(sample, logits_SV, *columns)(logits_SV, *columns)
    ids_S = torch.empty(num_rows, dtype=torch.int32, device=logits_SV.device)
    if not num_rows:
        return ids_S
    # Of blocks that need a multiprocessor each, 16 clusters of eight do not run at once.
    num_blocks = 4 if num_rows > 8 and vocabulary <= 4 * _SLICE_TOKENS else 8
    slice_tokens = -(-vocabulary // (4 * num_blocks)) * 4
    params = _Params(
        logits_SV.data_ptr(),
        *(column.data_ptr() for column in columns),
        ids_S.data_ptr(),
        *(vocabulary, logits_SV.stride(0), slice_tokens),
    )
    kernel = _SOURCE.kernel(
        f"sample_{num_blocks}", threads=1024, shared_bytes=_STATE_BYTES + 4 * slice_tokens
    )
    kernel.launch((num_blocks, num_rows), params)
    return ids_S
