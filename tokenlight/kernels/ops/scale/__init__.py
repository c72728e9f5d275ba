# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.scale import reference
from tokenlight.kernels.ops.scale.contract import scale

__all__ = ["reference", "scale"]
