# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.silu_mul import cpu, reference, shape
from tokenlight.kernels.ops.silu_mul.contract import silu_mul

__all__ = ["cpu", "reference", "shape", "silu_mul"]
