# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.native import WEIGHT_FORMATS
from tokenlight.kernels.ops.embedding.cpu import cpu as embedding
from tokenlight.kernels.ops.embedding_slice.contract import embedding_slice


@embedding_slice.implement(
    "cpu", device="cpu", dtypes={torch.int32}, formats=WEIGHT_FORMATS, rank=TUNED
)
def cpu(
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
