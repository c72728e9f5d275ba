# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.write_kv import cpu, reference, shape
from tokenlight.kernels.ops.write_kv.contract import write_kv_

__all__ = ["cpu", "reference", "shape", "write_kv_"]
