# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.gelu_tanh_mul import reference
from tokenlight.kernels.ops.gelu_tanh_mul.contract import gelu_tanh_mul

__all__ = ["gelu_tanh_mul", "reference"]
