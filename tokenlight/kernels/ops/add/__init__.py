# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.add import cpu, reference, shape
from tokenlight.kernels.ops.add.contract import add

__all__ = ["add", "cpu", "reference", "shape"]
