# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.linear import reference
from tokenlight.kernels.ops.linear.contract import linear

__all__ = ["linear", "reference"]
