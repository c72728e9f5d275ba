# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.linear_silu_mul import cpu, reference, shape
from tokenlight.kernels.ops.linear_silu_mul.contract import linear_silu_mul

__all__ = ["cpu", "linear_silu_mul", "reference", "shape"]
