# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.formats.tile16 import unpack_tile16
from tokenlight.kernels.ops.embedding.contract import embedding


@embedding.implement("reference", device="any", rank=REFERENCE)
def reference(
    ids_T: Tensor, table: Tensor, *, format: Format, dtype: torch.dtype = torch.float32
) -> Tensor:
    if ids_T.numel() and not 0 <= int(ids_T.min()) <= int(ids_T.max()) < table.shape[0]:
        raise IndexError(f"a token id is outside the vocabulary of {table.shape[0]}")
    if format.layout == "tile16":
        table, format = unpack_tile16(table, format), FORMATS[format.name]
    rows = table[ids_T.long()]
    if rows.shape[0] == 0:
        width = rows.shape[1] // format.block_bytes * format.block_elements
        return rows.new_empty(0, rows.shape[1] if format.is_dense else width, dtype=dtype)
    return dequantize(rows, format).to(dtype)
