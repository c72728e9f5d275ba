# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.norm_linear import reference, shape
from tokenlight.kernels.ops.norm_linear.contract import norm_linear

__all__ = ["norm_linear", "reference", "shape"]
