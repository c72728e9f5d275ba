# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_TK", "weight"))
def norm_linear_silu_mul(
    x_TK: Tensor,
    gain_K: Tensor,
    weight: Tensor,
    bias_N: Tensor | None,
    *,
    eps: float,
    format: Format,
) -> Tensor:
    """`rms_norm` of each row, then `linear_silu_mul`: a feed-forward layer up to its last product.

    Shapes: T tokens, K in features, N = 2F: F gates, then F ups.

    Args:
        x_TK: activations; last dimension contiguous, T may be 0.
        gain_K: the norm's, same dtype as `x_TK`.
        weight: dense [N, K], or uint8 [N, row_bytes], in the layout that `linear` wants.
        bias_N: same dtype as `x_TK`, or None.
        eps: added to the mean square.
        format: what `weight` is.

    Returns:
        A new contiguous [T, F] of the dtype of `x_TK`. A row may be scaled after the product
        instead of before it, so that what is rounded between the two is x times the gain.
    """
    raise NotImplementedError
