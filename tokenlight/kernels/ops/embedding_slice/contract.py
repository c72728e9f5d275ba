# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("ids_T", "table"))
def embedding_slice(
    ids_T: Tensor,
    table: Tensor,
    *,
    first_row: int,
    format: Format,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Look up rows in a part of the table; the sum over all parts is the lookup in the whole.

    Shapes: T tokens, V rows that are here, D hidden size.

    Args:
        ids_T: int32, of the whole vocabulary; T may be 0.
        table: rows `first_row` to `first_row` + V of the whole, as `embedding` takes it.
        first_row: the id of the first row here.
        format: what `table` is.
        dtype: of the result.

    Returns:
        [T, D], contiguous; zeros where the id is in another part.
    """
    raise NotImplementedError
