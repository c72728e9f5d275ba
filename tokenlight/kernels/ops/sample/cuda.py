# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.cuda import Source
from tokenlight.kernels.ops.sample.contract import sample

_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_BLOCKS = 8
_SHARED_BYTES = 227 * 1024
_STATE_BYTES = 84_000
MAX_VOCABULARY = _BLOCKS * (_SHARED_BYTES - _STATE_BYTES) // 4 // 32 * 32


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
    if not 0 < vocabulary <= MAX_VOCABULARY:
        raise ValueError(f"a vocabulary of 1 to {MAX_VOCABULARY}, got {vocabulary}")
    ids_S = torch.empty(num_rows, dtype=torch.int32, device=logits_SV.device)
    if not num_rows:
        return ids_S
    slice_tokens = -(-vocabulary // (4 * _BLOCKS)) * 4
    columns = (temperature_S, top_k_S, top_p_S, min_p_S, seeds_S, positions_S)
    params = _Params(
        logits_SV.data_ptr(),
        *(column.data_ptr() for column in columns),
        ids_S.data_ptr(),
        *(vocabulary, logits_SV.stride(0), slice_tokens),
    )
    kernel = _SOURCE.kernel("sample", threads=1024, shared_bytes=_STATE_BYTES + 4 * slice_tokens)
    kernel.launch((_BLOCKS, num_rows), params)
    return ids_S
