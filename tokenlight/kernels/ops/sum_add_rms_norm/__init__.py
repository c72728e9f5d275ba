# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.sum_add_rms_norm import cpu, reference, shape
from tokenlight.kernels.ops.sum_add_rms_norm.contract import sum_add_rms_norm

__all__ = ["cpu", "reference", "shape", "sum_add_rms_norm"]
