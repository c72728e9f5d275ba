# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.write_kv import cpu, reference
from tokenlight.kernels.ops.write_kv.contract import write_kv_

__all__ = ["cpu", "reference", "write_kv_"]
