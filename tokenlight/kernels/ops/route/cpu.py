# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.native import F32
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.route.contract import route


@route.implement("cpu", device="cpu", dtypes=F32, rank=TUNED)
def cpu(  # noqa: PLR0913 - how models route
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
    is_cut = num_experts % num_groups == 0 and 1 <= group_best <= min(2, num_experts // num_groups)
    if (
        not (is_cut and 1 <= top_groups <= num_groups)
        or not 1 <= top_k <= num_experts // num_groups * top_groups
        or scoring not in ("softmax", "sigmoid")
        or logits_TE.stride(1) != 1
    ):
        raise ValueError(
            f"{top_k} of {num_experts} experts cannot be chosen by {scoring} from {top_groups} of "
            f"{num_groups} groups, each worth its best {group_best}"
        )
    if bias_E is not None and (bias_E.shape != (num_experts,) or bias_E.dtype != torch.float32):
        raise ValueError(f"want a float32 bias of {num_experts}, got {list(bias_E.shape)}")
    experts_TA = torch.empty(num_tokens, top_k, dtype=torch.int32)
    weights_TA = torch.empty(num_tokens, top_k)
    _cpu.route(
        experts_TA.data_ptr(),
        weights_TA.data_ptr(),
        logits_TE.data_ptr(),
        0 if bias_E is None else bias_E.data_ptr(),
        num_tokens,
        num_experts,
        logits_TE.stride(0),
        top_k,
        num_groups,
        top_groups,
        group_best,
        scoring == "sigmoid",
        renormalise,
        scale,
    )
    return experts_TA, weights_TA


@route.enter("cpu")
def entry(call: NativeCall) -> bool:
    logits, options = call.operand(0), call.options
    if not logits.has_dense_rows():
        return False
    experts, weights = call.outputs
    call.program.route(
        experts.place,
        weights.place,
        logits.place,
        call.place(1),
        logits.rows,
        logits.shape[0],
        logits.strides[0],
        options["top_k"],
        options.get("num_groups", 1),
        options.get("top_groups", 1),
        options.get("group_best", 1),
        options.get("scoring", "softmax") == "sigmoid",
        options.get("renormalise", False),
        options.get("scale", 1.0),
    )
    return True
