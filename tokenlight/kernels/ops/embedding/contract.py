# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("ids_T", "table"))
def embedding(
    ids_T: Tensor, table: Tensor, *, format: Format, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Look up a row of the table per token.

    Shapes: T tokens, V vocabulary, D hidden size.

    Args:
        ids_T: int32, each in [0, V); T may be 0.
        table: dense [V, D], or uint8 [V, row_bytes] in any layout that `linear` reads, so that a
            tied table is kept once.
        format: what `table` is.
        dtype: of the result: the model's activations.

    Returns:
        [T, D], contiguous.

    Raises:
        IndexError: an id is outside the table.
    """
    raise NotImplementedError
