# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.paged_attention import cpu, reference, shape
from tokenlight.kernels.ops.paged_attention.contract import SHORT_TOKENS, paged_attention

__all__ = ["SHORT_TOKENS", "cpu", "paged_attention", "reference", "shape"]
