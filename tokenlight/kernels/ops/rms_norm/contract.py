# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def rms_norm(x_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    """Scale each row to unit root-mean-square, then by `weight_D`.

    Shapes: T tokens packed over requests, D hidden size. Leading dimensions may be more than one
    ([T, H, d] norms each head).

    Args:
        x_TD: activations; last dimension contiguous, T may be 0.
        weight_D: per-channel gain, same dtype as `x_TD`. A model whose gain is 1 + w adds the 1 at
            load.
        eps: added to the mean square, dimensionless; 1e-6 in most checkpoints.

    Returns:
        A new contiguous tensor of the shape and dtype of `x_TD`. The mean is accumulated in float32
        or wider.
    """
    raise NotImplementedError
