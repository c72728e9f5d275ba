# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.embedding_slice import cpu, reference, shape
from tokenlight.kernels.ops.embedding_slice.contract import embedding_slice

__all__ = ["cpu", "embedding_slice", "reference", "shape"]
