# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.gather_rows import cpu, reference, shape
from tokenlight.kernels.ops.gather_rows.contract import gather_rows

__all__ = ["cpu", "gather_rows", "reference", "shape"]
