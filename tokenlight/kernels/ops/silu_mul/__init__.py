# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.silu_mul import cpu, reference
from tokenlight.kernels.ops.silu_mul.contract import silu_mul

__all__ = ["cpu", "reference", "silu_mul"]
