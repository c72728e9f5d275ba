# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.embedding.shape import shape as embedding
from tokenlight.kernels.ops.embedding_slice.contract import embedding_slice


@embedding_slice.shape
def shape(
    ids_T: Tensor,
    table: Tensor,
    *,
    first_row: int,
    format: Format,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    return embedding(ids_T, table, format=format, dtype=dtype)
