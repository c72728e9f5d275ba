# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op
from tokenlight.kernels.formats import Format


@op(typed_by=("x_TD", "gate_up"))
def moe(  # noqa: PLR0913 - what an expert is made of
    x_TD: Tensor,
    experts_TA: Tensor,
    weights_TA: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    format: Format,
    down_format: Format,
    first_expert: int = 0,
    limit: float = 0.0,
    alpha: float = 1.0,
    shift: float = 0.0,
) -> Tensor:
    """Give each token to its experts and add up what they answer, times its weights.

    An expert is a gated feed-forward layer: down(gate * sigmoid(alpha * gate) * (up + shift)), gate
    and up of x each with its bias. The defaults are SiLU.

    Shapes: T tokens, D hidden, A chosen experts per token, E experts that are here, F inner
    features.

    Args:
        x_TD: last dimension contiguous, T may be 0.
        experts_TA: int32, as `route` gives them, counted over all experts wherever they are.
        weights_TA: float32.
        gate_up: dense [E, 2F, D], or uint8 [E, 2F, row_bytes]: for each expert gate's rows and then
            up's, as `kernels.pack_linear` packs them.
        down: dense [E, D, F], or uint8 [E, D, row_bytes], likewise.
        gate_up_bias: float32 [E, 2F], or None.
        down_bias: float32 [E, D], or None.
        format: what `gate_up` is.
        down_format: what `down` is.
        first_expert: the number of the first expert here. Choices of experts that are not here add
            nothing: another rank adds them.
        limit: gate is at most this, and up at most this far from 0; 0 for no limit.
        alpha: of the sigmoid.
        shift: added to up.

    Returns:
        A new contiguous [T, D] of the dtype of `x_TD`. A token's answers are added in the order of
        its choices, so its result never depends on the others. Activations may be rounded as in
        `linear`.
    """
    raise NotImplementedError
