# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.moe import cpu, reference, shape
from tokenlight.kernels.ops.moe.contract import moe

__all__ = ["cpu", "moe", "reference", "shape"]
