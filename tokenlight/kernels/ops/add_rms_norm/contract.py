# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def add_rms_norm(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    """`add`, then `rms_norm` of the sum: the end of one branch and the start of the next.

    Shapes: T tokens, D hidden size.

    Args:
        x_TD: a branch's result; last dimension contiguous, T may be 0.
        residual_TD: same shape and dtype.
        weight_D: per-channel gain, same dtype.
        eps: added to the mean square.

    Returns:
        The normalised sum, and the sum itself: new and contiguous. The norm is that of the sum as
        rounded to its dtype, so fusing changes no bit of the definition.
    """
    raise NotImplementedError
