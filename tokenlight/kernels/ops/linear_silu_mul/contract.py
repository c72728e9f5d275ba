# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_TK", "weight"))
def linear_silu_mul(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format
) -> Tensor:
    """`linear`, then `silu_mul`: gate and up of a feed-forward layer, and what joins them.

    Shapes: T tokens, K in features, N = 2F: F gates, then F ups.

    Args:
        x_TK: activations; last dimension contiguous, T may be 0.
        weight: dense [N, K], or uint8 [N, row_bytes], in the layout that `linear` wants.
        bias_N: same dtype as `x_TK`, or None.
        format: what `weight` is.

    Returns:
        A new contiguous [T, F] of the dtype of `x_TK`. What `linear` would have rounded between
        the two may stay wider.
    """
    raise NotImplementedError
