# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def route(  # noqa: PLR0913 - how models route
    logits_TE: Tensor,
    bias_E: Tensor | None,
    *,
    top_k: int,
    scoring: str = "softmax",
    num_groups: int = 1,
    top_groups: int = 1,
    group_best: int = 1,
    renormalise: bool = False,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Choose each token's experts, and what each one's answer counts.

    Shapes: T tokens, E experts, A chosen experts (`top_k`).

    Args:
        logits_TE: the router's; last dimension contiguous, T may be 0.
        bias_E: float32, added to the scores for the choice and not for the weights; or None.
        top_k: how many experts a token has.
        scoring: "softmax" over all experts, or "sigmoid" of each.
        num_groups: experts are in so many groups of equal size; only those of the best are chosen
            from.
        top_groups: how many groups that is.
        group_best: a group's score is its best expert's (1), or the sum of its best two (2).
        renormalise: whether a token's weights are divided by their sum.
        scale: multiplies all weights, last.

    Returns:
        int32 and float32 [T, A]: the experts, the best first, and their weights. Of equal scores
        the expert, or group, of the lower number is the better.
    """
    raise NotImplementedError
