# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.moe.contract import moe


@moe.implement("reference", device="any", rank=REFERENCE)
def reference(  # noqa: PLR0913 - what an expert is made of
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
    answers_TAD = x_TD.new_zeros(*experts_TA.shape, x_TD.shape[1], dtype=torch.float64)
    for expert in experts_TA.unique().tolist():
        here = expert - first_expert
        if not 0 <= here < len(gate_up):
            continue
        tokens, choices = torch.where(experts_TA == expert)
        both = x_TD[tokens].double() @ dequantize(gate_up[here], format).double().T
        if gate_up_bias is not None:
            both += gate_up_bias[here]
        gate, up = both.chunk(2, dim=-1)
        if limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        inner = gate * (alpha * gate).sigmoid() * (up + shift)
        answer = inner @ dequantize(down[here], down_format).double().T
        if down_bias is not None:
            answer += down_bias[here]
        answers_TAD[tokens, choices] = answer * weights_TA[tokens, choices, None]
    return answers_TAD.sum(1).to(x_TD.dtype)
