# SPDX-License-Identifier: Apache-2.0
import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenlight.kernels.contract import PORTABLE
from tokenlight.kernels.ops.route.contract import route
from tokenlight.kernels.triton.launch import FLOATS
from tokenlight.kernels.triton.math import sigmoid


@route.implement("triton", device="cuda", dtypes=FLOATS, rank=PORTABLE)
def run(
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
    num_tokens, num_experts = logits_TE.shape
    device = logits_TE.device
    experts_TA = torch.empty(num_tokens, top_k, dtype=torch.int32, device=device)
    weights_TA = torch.empty(num_tokens, top_k, dtype=torch.float32, device=device)
    is_grouped = top_groups < num_groups
    groups = num_groups if is_grouped else 1
    if num_tokens:
        _choose[(num_tokens,)](
            *(experts_TA, weights_TA, logits_TE, logits_TE if bias_E is None else bias_E),
            *(logits_TE.stride(0), groups, num_experts // groups, scale),
            HAS_BIAS=bias_E is not None,
            IS_SIGMOID=scoring == "sigmoid",
            IS_GROUPED=is_grouped,
            RENORMALISE=renormalise,
            TOP_K=top_k,
            TOP_GROUPS=top_groups,
            GROUP_BEST=group_best,
            A=triton.next_power_of_2(top_k),
            G=triton.next_power_of_2(groups),
            E=triton.next_power_of_2(num_experts // groups),
        )
    return experts_TA, weights_TA


@triton.jit
def _best(values, order, END: tl.constexpr):
    """The largest value and the lowest place that has it."""
    best = tl.max(values, 0)
    return best, tl.min(tl.where(values == best, order, END), 0)


@triton.jit
def _choose(
    experts, weights, logits, bias, stride, num_groups, group_size, scale,
    HAS_BIAS: tl.constexpr, IS_SIGMOID: tl.constexpr, IS_GROUPED: tl.constexpr,
    RENORMALISE: tl.constexpr, TOP_K: tl.constexpr, TOP_GROUPS: tl.constexpr,
    GROUP_BEST: tl.constexpr, A: tl.constexpr, G: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    g, e = tl.arange(0, G)[:, None], tl.arange(0, E)[None, :]
    is_expert_GE = (g < num_groups) & (e < group_size)
    id_GE = g * group_size + e
    minus = float("-inf")
    x_GE = tl.load(logits + token * stride + id_GE, mask=is_expert_GE, other=minus).to(tl.float32)
    if IS_SIGMOID:
        score_GE = sigmoid(x_GE)
    else:
        x_GE = tl.exp(x_GE - tl.max(tl.max(x_GE, 1), 0))
        score_GE = x_GE / tl.sum(tl.sum(x_GE, 1), 0)
    choice_GE = score_GE
    if HAS_BIAS:
        choice_GE += tl.load(bias + id_GE, mask=is_expert_GE, other=0.0)
    choice_GE = tl.where(is_expert_GE, choice_GE, minus)

    if IS_GROUPED:
        group_G = tl.max(choice_GE, 1)
        if GROUP_BEST == 2:
            first_G = tl.min(tl.where(choice_GE == group_G[:, None], e, E), 1)
            group_G += tl.max(tl.where(e == first_G[:, None], minus, choice_GE), 1)
        number_G = tl.arange(0, G)
        is_kept_G = number_G < 0
        for _ in tl.static_range(TOP_GROUPS):
            _best_value, best = _best(group_G, number_G, G)
            is_kept_G |= number_G == best
            group_G = tl.where(number_G == best, minus, group_G)
        choice_GE = tl.where(is_kept_G[:, None], choice_GE, minus)

    a = tl.arange(0, A)
    weight_A = tl.zeros([A], tl.float32)
    END: tl.constexpr = G * E
    for n in tl.static_range(TOP_K):
        best = tl.max(tl.max(choice_GE, 1), 0)
        chosen = tl.min(tl.min(tl.where((choice_GE == best) & is_expert_GE, id_GE, END), 1), 0)
        is_chosen_GE = (id_GE == chosen) & is_expert_GE
        weight = tl.sum(tl.sum(tl.where(is_chosen_GE, score_GE, 0.0), 1), 0)
        tl.store(experts + token * TOP_K + n, chosen)
        weight_A = tl.where(a == n, weight, weight_A)
        choice_GE = tl.where(is_chosen_GE, minus, choice_GE)
        is_expert_GE &= id_GE != chosen
    if RENORMALISE:
        weight_A = weight_A / (tl.sum(weight_A, 0) + 1e-20)
    tl.store(weights + token * TOP_K + a, weight_A * scale, mask=a < TOP_K)
