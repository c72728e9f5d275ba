# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def softcap(x_TN: Tensor, *, cap: float) -> Tensor:
    """Squash each element to (-cap, cap): cap * tanh(x / cap).

    Shapes: T tokens, N any width (logits in the models that use it).

    Args:
        x_TN: last dimension contiguous, T may be 0.
        cap: greater than 0.

    Returns:
        A new contiguous tensor of the same shape and dtype.
    """
    raise NotImplementedError
