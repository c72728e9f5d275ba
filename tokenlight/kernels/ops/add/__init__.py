# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.add import reference
from tokenlight.kernels.ops.add.contract import add

__all__ = ["add", "reference"]
