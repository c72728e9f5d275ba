# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def to_float32(x_TN: Tensor) -> Tensor:
    """Widen to float32: logits, before anything is compared or summed.

    Shapes: T tokens, N any width.

    Args:
        x_TN: last dimension contiguous, T may be 0. A compiled program leaves the call out where
            this is float32 already.

    Returns:
        float32, contiguous, of the same shape.
    """
    raise NotImplementedError
