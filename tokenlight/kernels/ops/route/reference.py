# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.route.contract import route


@route.implement("reference", device="any", rank=REFERENCE)
def reference(  # noqa: PLR0913 - how models route
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
    logits_TE = logits_TE.float()
    scores_TE = logits_TE.sigmoid() if scoring == "sigmoid" else logits_TE.softmax(-1)
    choice_TE = scores_TE if bias_E is None else scores_TE + bias_E
    if top_groups < num_groups:
        choice_TGe = choice_TE.unflatten(-1, (num_groups, -1))
        groups_TG = _ordered(choice_TGe).values[..., :group_best].sum(-1)
        ranks_TG = _ordered(groups_TG).indices.argsort(-1)
        is_left_TGe = (ranks_TG >= top_groups)[..., None].expand(choice_TGe.shape)
        choice_TE = choice_TGe.masked_fill(is_left_TGe, -torch.inf).flatten(-2)
    experts_TA = _ordered(choice_TE).indices[..., :top_k]
    weights_TA = scores_TE.gather(-1, experts_TA)
    if renormalise:
        weights_TA = weights_TA / (weights_TA.sum(-1, keepdim=True) + 1e-20)
    return experts_TA.int(), weights_TA * scale


def _ordered(values: Tensor) -> torch.return_types.sort:
    return values.sort(dim=-1, descending=True, stable=True)
