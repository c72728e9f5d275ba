# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_TK", "weight"))
def linear(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    """Multiply each row by the transposed weight and add the bias.

    Shapes: T tokens, K in features, N out features.

    Args:
        x_TK: activations; last dimension contiguous, T may be 0.
        weight: dense [N, K], or uint8 [N, row_bytes] as `kernels.pack_linear` made it.
        bias_N: same dtype as `x_TK`, or None.
        format: what `weight` is.

    Returns:
        A new contiguous [T, N] of the dtype of `x_TK`. Sums are float32 or wider. Implementations
        may round activations to 15 bits in blocks of 32 where the weights are quantized; a row's
        result never depends on the others.
    """
    raise NotImplementedError
