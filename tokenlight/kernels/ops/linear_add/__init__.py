# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.linear_add import reference, shape
from tokenlight.kernels.ops.linear_add.contract import linear_add

__all__ = ["linear_add", "reference", "shape"]
