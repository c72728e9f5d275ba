# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def gelu_tanh_mul(gate_up_T2F: Tensor) -> Tensor:
    """GELU (tanh form) of the first half of each row, times the second half.

    Shapes: T tokens, F features of the feed-forward layer.

    Args:
        gate_up_T2F: last dimension contiguous, T may be 0.

    Returns:
        A new contiguous [T, F] of the same dtype.
    """
    raise NotImplementedError
