# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.rope_write_kv import cpu, reference, shape
from tokenlight.kernels.ops.rope_write_kv.contract import rope_write_kv_

__all__ = ["cpu", "reference", "rope_write_kv_", "shape"]
