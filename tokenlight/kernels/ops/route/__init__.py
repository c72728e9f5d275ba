# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.route import cpu, reference
from tokenlight.kernels.ops.route.contract import route

__all__ = ["cpu", "reference", "route"]
