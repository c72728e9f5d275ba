# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.write_kv import reference
from tokenlight.kernels.ops.write_kv.contract import write_kv_

__all__ = ["reference", "write_kv_"]
