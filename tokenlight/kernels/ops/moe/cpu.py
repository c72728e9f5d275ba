# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import TUNED
from tokenlight.kernels.formats import Format
from tokenlight.kernels.native import F32, WEIGHT_FORMATS
from tokenlight.kernels.native_call import NativeCall
from tokenlight.kernels.ops.moe.contract import moe


@moe.implement("cpu", device="cpu", dtypes=F32, formats=WEIGHT_FORMATS, rank=TUNED)
def cpu(  # noqa: PLR0913 - what an expert is made of
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
    num_tokens, dim = x_TD.shape
    num_experts, inner = gate_up.shape[0], gate_up.shape[1] // 2
    _check_routing(experts_TA, weights_TA, num_tokens)
    _check_weight("gate_up", gate_up, (num_experts, 2 * inner, dim), format)
    _check_weight("down", down, (num_experts, dim, inner), down_format)
    _check_bias("gate_up", gate_up_bias, (num_experts, 2 * inner))
    _check_bias("down", down_bias, (num_experts, dim))
    if x_TD.stride(1) != 1:
        x_TD = x_TD.contiguous()
    out_TD = torch.empty(num_tokens, dim)
    _cpu.moe(
        out_TD.data_ptr(),
        x_TD.data_ptr(),
        experts_TA.data_ptr(),
        weights_TA.data_ptr(),
        gate_up.data_ptr(),
        down.data_ptr(),
        0 if gate_up_bias is None else gate_up_bias.data_ptr(),
        0 if down_bias is None else down_bias.data_ptr(),
        num_tokens,
        dim,
        inner,
        num_experts,
        experts_TA.shape[1],
        first_expert,
        x_TD.stride(0),
        WEIGHT_FORMATS[format],
        WEIGHT_FORMATS[down_format],
        limit,
        alpha,
        shift,
    )
    return out_TD


def _check_routing(experts_TA: Tensor, weights_TA: Tensor, num_tokens: int) -> None:
    if (
        experts_TA.dtype != torch.int32
        or weights_TA.dtype != torch.float32
        or experts_TA.shape != weights_TA.shape
        or experts_TA.shape[0] != num_tokens
        or not (experts_TA.is_contiguous() and weights_TA.is_contiguous())
    ):
        raise ValueError(
            f"experts {experts_TA.dtype} {list(experts_TA.shape)} and weights {weights_TA.dtype} "
            f"{list(weights_TA.shape)} do not route {num_tokens} tokens"
        )


def _check_weight(name: str, weight: Tensor, shape: tuple[int, int, int], format: Format) -> None:
    num_experts, n, k = shape
    width = k if format.is_dense else format.row_bytes(k)
    if (
        format not in WEIGHT_FORMATS
        or k % format.block_elements
        or weight.shape != (num_experts, n, width)
        or not weight.is_contiguous()
    ):
        raise ValueError(
            f"{name} of {list(weight.shape)} is no {format} weight of {num_experts} experts, "
            f"each [{n}, {k}]"
        )


def _check_bias(name: str, bias: Tensor | None, shape: tuple[int, int]) -> None:
    if bias is None:
        return
    if bias.shape != shape or bias.dtype != torch.float32 or not bias.is_contiguous():
        raise ValueError(
            f"want a float32 bias of {list(shape)} for {name}, got {bias.dtype} {list(bias.shape)}"
        )


@moe.enter("cpu")
def entry(call: NativeCall) -> bool:
    x, experts, weights, gate_up, down = (call.operand(index) for index in range(5))
    per_token = experts.shape[0]
    if not (x.has_dense_rows() and weights.has_dense_rows()):
        return False
    if experts.strides != (per_token, 1) or weights.strides != (per_token, 1):
        return False
    call.program.moe(
        call.outputs[0].place,
        x.place,
        experts.place,
        weights.place,
        gate_up.place,
        down.place,
        call.place(5),
        call.place(6),
        x.rows,
        x.shape[0],
        gate_up.shape[0] // 2,
        gate_up.num_rows,
        per_token,
        call.options.get("first_expert", 0),
        x.strides[0],
        WEIGHT_FORMATS[call.options["format"]],
        WEIGHT_FORMATS[call.options["down_format"]],
        call.options.get("limit", 0.0),
        call.options.get("alpha", 1.0),
        call.options.get("shift", 0.0),
    )
    return True
