# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.linear import cpu, reference, shape
from tokenlight.kernels.ops.linear.contract import linear

__all__ = ["cpu", "linear", "reference", "shape"]
