# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.linear import cpu, reference
from tokenlight.kernels.ops.linear.contract import linear

__all__ = ["cpu", "linear", "reference"]
