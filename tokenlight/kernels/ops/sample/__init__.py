# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.sample import cpu, reference
from tokenlight.kernels.ops.sample.contract import sample

__all__ = ["cpu", "reference", "sample"]
