# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.silu_mul.cases import benches, cases, parts

__all__ = ["benches", "cases", "parts"]
