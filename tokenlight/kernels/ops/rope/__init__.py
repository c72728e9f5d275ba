# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.rope import reference
from tokenlight.kernels.ops.rope.contract import rope_

__all__ = ["reference", "rope_"]
