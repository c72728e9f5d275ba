# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def scale(x_TD: Tensor, *, factor: float) -> Tensor:
    """Multiply every element by one number: embeddings of the models that want it.

    Shapes: T tokens, D hidden size.

    Args:
        x_TD: last dimension contiguous, T may be 0.
        factor: rounded to the dtype of `x_TD` first, as the models were trained.

    Returns:
        A new contiguous tensor like `x_TD`.
    """
    raise NotImplementedError
