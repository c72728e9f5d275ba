# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_THK", "weight"))
def head_linear(x_THK: Tensor, weight: Tensor, *, format: Format) -> Tensor:
    """Multiply what each head has by the transposed weight of that head.

    Shapes: T tokens, H heads, K in features, N out features of a head.

    Args:
        x_THK: heads and features contiguous, tokens may be strided, T may be 0.
        weight: dense [H, N, K], or uint8 [H, N, row_bytes], each head's as `kernels.pack_linear`
            made it.
        format: what `weight` is.

    Returns:
        A new contiguous [T, H, N] of the dtype of `x_THK`. Sums and rounding are those of `linear`.
    """
    raise NotImplementedError
