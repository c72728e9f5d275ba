# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def sum_add_rms_norm(
    shares_TN: Tensor, residual_TD: Tensor, weight_D: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    """The end of an all-reduce, then `add_rms_norm`: shares of a sum as `gather_shares` gives them.

    Shapes: T tokens, D hidden size, N = G * D: of each token G ranks' shares.

    Args:
        shares_TN: in rank order, which they are added in; last dimension contiguous, T may be 0.
        residual_TD: same dtype.
        weight_D: per-channel gain, same dtype.
        eps: added to the mean square.

    Returns:
        The normalised sum, and the sum itself: new and contiguous. Both have the bits that
        `all_reduce`, `add` and `rms_norm` give.
    """
    raise NotImplementedError
