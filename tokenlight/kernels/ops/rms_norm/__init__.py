# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.rms_norm import cpu, reference, shape
from tokenlight.kernels.ops.rms_norm.contract import rms_norm

__all__ = ["cpu", "reference", "rms_norm", "shape"]
