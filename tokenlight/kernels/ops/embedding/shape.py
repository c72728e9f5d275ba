# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.embedding.contract import embedding


@embedding.shape
def shape(
    ids_T: Tensor, table: Tensor, *, format: Format, dtype: torch.dtype = torch.float32
) -> Tensor:
    width = table.shape[1] // (1 if format.is_dense else format.block_bytes) * format.block_elements
    return ids_T.new_empty(ids_T.shape[0], width, dtype=dtype)
