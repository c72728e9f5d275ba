# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.ops.sample.contract import sample

_COLUMNS = (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64, torch.int32)


@sample.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(
    logits_SV: Tensor,
    temperature_S: Tensor,
    top_k_S: Tensor,
    top_p_S: Tensor,
    min_p_S: Tensor,
    seeds_S: Tensor,
    positions_S: Tensor,
) -> Tensor:
    num_rows, vocabulary = logits_SV.shape
    if logits_SV.stride(1) != 1:
        logits_SV = logits_SV.contiguous()
    columns = (temperature_S, top_k_S, top_p_S, min_p_S, seeds_S, positions_S)
    for column, dtype in zip(columns, _COLUMNS, strict=True):
        if column.shape != (num_rows,) or column.dtype != dtype or not column.is_contiguous():
            raise ValueError(
                f"{num_rows} rows want {num_rows} parameters of {dtype}, "
                f"got {column.dtype} {list(column.shape)}"
            )
    if vocabulary == 0:
        raise ValueError("cannot sample from an empty vocabulary")
    ids_S = torch.empty(num_rows, dtype=torch.int32)
    _cpu.sample(
        ids_S.data_ptr(),
        logits_SV.data_ptr(),
        temperature_S.data_ptr(),
        top_k_S.data_ptr(),
        top_p_S.data_ptr(),
        min_p_S.data_ptr(),
        seeds_S.data_ptr(),
        positions_S.data_ptr(),
        num_rows,
        vocabulary,
        logits_SV.stride(0),
    )
    return ids_S
