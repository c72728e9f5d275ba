# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op(mutates=("q_THd", "k_TKd"))
def rope_(q_THd: Tensor, k_TKd: Tensor, cos_sin_Tr: Tensor) -> None:
    """Rotate the first r dimensions of each head by its token's angles, in place; the rest pass.

    Shapes: T tokens, H heads, K kv heads, d head dim, r rotated dims (even, at most d).

    Dimension i is paired with i + r/2 ("NeoX" halves).

    Args:
        q_THd: queries; heads and dimensions contiguous, tokens may be strided (a view into a fused
            projection).
        k_TKd: keys, likewise.
        cos_sin_Tr: float32, contiguous; the first r/2 of a row are cosines, the rest sines.
    """
    raise NotImplementedError
