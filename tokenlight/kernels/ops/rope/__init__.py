# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.rope import cpu, reference, shape
from tokenlight.kernels.ops.rope.contract import rope_

__all__ = ["cpu", "reference", "rope_", "shape"]
