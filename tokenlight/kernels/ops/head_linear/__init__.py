# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.head_linear import cpu, reference, shape
from tokenlight.kernels.ops.head_linear.contract import head_linear

__all__ = ["cpu", "head_linear", "reference", "shape"]
