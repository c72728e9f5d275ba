# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.softcap import reference
from tokenlight.kernels.ops.softcap.contract import softcap

__all__ = ["reference", "softcap"]
