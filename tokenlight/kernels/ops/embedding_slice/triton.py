# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.formats import DENSE, Format
from tokenlight.kernels.ops.embedding_slice.contract import embedding_slice
from tokenlight.kernels.triton.rows import move_rows


@embedding_slice.implement(
    "triton", device="cuda", dtypes={torch.int32}, formats=DENSE, rank=PORTABLE
)
def run(
    ids_T: Tensor,
    table: Tensor,
    *,
    first_row: int,
    format: Format,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    out_TD = torch.empty(len(ids_T), table.shape[1], dtype=dtype, device=ids_T.device)
    move_rows(out_TD, table, rows_T=ids_T.contiguous(), first_row=first_row, missing=0.0)
    return out_TD
