# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def gather_rows(x_TD: Tensor, rows_S: Tensor) -> Tensor:
    """Pick rows: of all tokens, those whose logits are wanted.

    Shapes: T tokens, S sampled rows, D hidden size.

    Args:
        x_TD: last dimension contiguous.
        rows_S: int32, each in [0, T); S may be 0.

    Returns:
        A new contiguous [S, D] of the dtype of `x_TD`.

    Raises:
        IndexError: a row is outside; on a GPU nothing is checked.
    """
    raise NotImplementedError
