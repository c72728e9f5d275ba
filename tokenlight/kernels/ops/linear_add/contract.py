# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_TK", "weight"))
def linear_add(
    x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, residual_TN: Tensor, *, format: Format
) -> Tensor:
    """`linear`, then `add` to what the branch left: the end of attention and of feed-forward.

    Shapes: T tokens, K in features, N out features.

    Args:
        x_TK: activations; last dimension contiguous, T may be 0.
        weight: dense [N, K], or uint8 [N, row_bytes], in the layout that `linear` wants.
        bias_N: same dtype as `x_TK`, or None.
        residual_TN: same dtype; last dimension contiguous.
        format: what `weight` is.

    Returns:
        A new contiguous [T, N] of the dtype of `x_TK`. What `linear` would have rounded between
        the two may stay wider.
    """
    raise NotImplementedError
