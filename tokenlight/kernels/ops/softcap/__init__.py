# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.softcap import cpu, reference, shape
from tokenlight.kernels.ops.softcap.contract import softcap

__all__ = ["cpu", "reference", "shape", "softcap"]
