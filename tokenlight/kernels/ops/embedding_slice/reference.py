# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.embedding.reference import reference as embedding
from tokenlight.kernels.ops.embedding_slice.contract import embedding_slice


@embedding_slice.implement("reference", device="any", rank=REFERENCE)
def reference(
    ids_T: Tensor,
    table: Tensor,
    *,
    first_row: int,
    format: Format,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    rows_T = ids_T - first_row
    is_here_T = (rows_T >= 0) & (rows_T < table.shape[0])
    x_TD = embedding(rows_T * is_here_T, table, format=format, dtype=dtype)
    return x_TD * is_here_T[:, None].to(dtype)
