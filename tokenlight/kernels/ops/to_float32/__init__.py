# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.to_float32 import reference
from tokenlight.kernels.ops.to_float32.contract import to_float32

__all__ = ["reference", "to_float32"]
