# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.embedding import reference
from tokenlight.kernels.ops.embedding.contract import embedding

__all__ = ["embedding", "reference"]
