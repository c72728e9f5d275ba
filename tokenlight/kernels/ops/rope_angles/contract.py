# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def rope_angles(positions_T: Tensor, frequencies: Tensor, *, magnitude: float) -> Tensor:
    """Cosines and sines of position * frequency, for every layer of a step.

    Shapes: T tokens, r rotated dims; an angle depends on its token's position alone.

    Args:
        positions_T: int32; T may be 0.
        frequencies: float32 [r / 2], radians per position.
        magnitude: multiplies cosines and sines; 1.0 for none.

    Returns:
        A new contiguous float32 [T, r]: the first r/2 of a row are cosines, the rest sines. The
        product is rounded to float32 before the cosine, as in the models' training code.
    """
    raise NotImplementedError
