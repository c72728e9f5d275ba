# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.norm_linear_silu_mul import reference, shape
from tokenlight.kernels.ops.norm_linear_silu_mul.contract import norm_linear_silu_mul

__all__ = ["norm_linear_silu_mul", "reference", "shape"]
