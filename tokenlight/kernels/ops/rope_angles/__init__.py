# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.rope_angles import cpu, reference, shape
from tokenlight.kernels.ops.rope_angles.contract import rope_angles

__all__ = ["cpu", "reference", "rope_angles", "shape"]
