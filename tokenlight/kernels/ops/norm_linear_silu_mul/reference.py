# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.ops.linear_silu_mul.reference import reference as linear_silu_mul
from tokenlight.kernels.ops.norm_linear_silu_mul.contract import norm_linear_silu_mul
from tokenlight.kernels.ops.rms_norm.reference import reference as rms_norm


@norm_linear_silu_mul.implement("reference", device="any", rank=REFERENCE)
def reference(
    x_TK: Tensor,
    gain_K: Tensor,
    weight: Tensor,
    bias_N: Tensor | None,
    *,
    eps: float,
    format: Format,
) -> Tensor:
    return linear_silu_mul(rms_norm(x_TK, gain_K, eps=eps), weight, bias_N, format=format)
