# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.ops.linear.contract import linear


@linear.implement("reference", device="any", rank=REFERENCE)
def reference(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    y_TN = x_TK.double() @ dequantize(weight, format).double().T
    if bias_N is not None:
        y_TN += bias_N.double()
    return y_TN.to(x_TK.dtype)
