# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.scale import cpu, reference, shape
from tokenlight.kernels.ops.scale.contract import scale

__all__ = ["cpu", "reference", "scale", "shape"]
