# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.add_rms_norm import cpu, reference, shape
from tokenlight.kernels.ops.add_rms_norm.contract import add_rms_norm

__all__ = ["add_rms_norm", "cpu", "reference", "shape"]
