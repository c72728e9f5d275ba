# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.ops.write_kv.contract import write_kv_


@write_kv_.shape
def shape(*tensors: Tensor) -> None:
    return None
