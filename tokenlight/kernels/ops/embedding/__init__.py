# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.embedding import cpu, reference, shape
from tokenlight.kernels.ops.embedding.contract import embedding

__all__ = ["cpu", "embedding", "reference", "shape"]
