# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def concat_columns(*parts_TN: Tensor) -> Tensor:
    """Put matrices side by side: the products of a fused layer whose parts differ in format.

    Shapes: T tokens, N columns of a part.

    Args:
        parts_TN: at least one; the same T and dtype, last dimension contiguous.

    Returns:
        A new contiguous [T, sum of N].
    """
    raise NotImplementedError
