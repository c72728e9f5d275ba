# SPDX-License-Identifier: Apache-2.0
from tokenlight.kernels.ops.gelu_tanh_mul import cpu, reference, shape
from tokenlight.kernels.ops.gelu_tanh_mul.contract import gelu_tanh_mul

__all__ = ["cpu", "gelu_tanh_mul", "reference", "shape"]
