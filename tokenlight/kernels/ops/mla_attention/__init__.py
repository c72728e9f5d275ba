# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.mla_attention import cpu, reference, shape
from tokenlight.kernels.ops.mla_attention.contract import mla_attention

__all__ = ["cpu", "mla_attention", "reference", "shape"]
