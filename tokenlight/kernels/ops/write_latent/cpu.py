# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32, FLOAT_TYPES, paged_batch
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.native_paged import paged_places
from tokenlight.kernels.ops.write_latent.contract import write_latent_


@write_latent_.implement("cpu", device="cpu", dtypes=F32, stored=FLOAT_TYPES, rank=TUNED)
def cpu(
    latent_TC: Tensor,
    rotated_T1r: Tensor,
    cache_B1PL: Tensor,
    positions_T: Tensor,
    query_starts: Tensor,
    block_table: Tensor,
    slots: Tensor,
) -> None:
    num_tokens, latent_dim = latent_TC.shape
    rotated_dim = rotated_T1r.shape[-1]
    if (
        rotated_T1r.shape != (num_tokens, 1, rotated_dim)
        or rotated_T1r.dtype != torch.float32
        or latent_TC.stride(1) != 1
        or rotated_T1r.stride(2) != 1
        or cache_B1PL.shape[1::2] != (1, latent_dim + rotated_dim)
        or positions_T.shape != (num_tokens,)
        or positions_T.dtype != torch.int32
        or not positions_T.is_contiguous()
    ):
        raise ValueError(
            f"latents {list(latent_TC.shape)}, rotated keys {rotated_T1r.dtype} "
            f"{list(rotated_T1r.shape)} and positions {positions_T.dtype} "
            f"{list(positions_T.shape)} do not fit a cache of {list(cache_B1PL.shape)}"
        )
    _cpu.write_latent(
        paged_batch(query_starts, block_table, slots, num_tokens, cache_B1PL),
        latent_TC.data_ptr(),
        rotated_T1r.data_ptr(),
        cache_B1PL.data_ptr(),
        positions_T.data_ptr(),
        FLOAT_TYPES[cache_B1PL.dtype],
        latent_dim,
        rotated_dim,
        latent_TC.stride(0),
        rotated_T1r.stride(0),
    )


@write_latent_.enter("cpu")
def entry(call: NativeCall) -> bool:
    latent, rotated, cache = (call.operand(index) for index in range(3))
    if not (latent.has_dense_rows() and rotated.has_dense_rows()):
        return False
    call.program.write_latent(
        paged_places(call, query_starts=4, block_table=5, slots=6, cache=cache),
        latent.place,
        rotated.place,
        cache.place,
        call.place(3),
        FLOAT_TYPES[cache.dtype],
        latent.shape[0],
        rotated.shape[-1],
        latent.strides[0],
        rotated.strides[0],
    )
    return True
