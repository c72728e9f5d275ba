# SPDX-License-Identifier: Apache-2.0
"""`linear` in bfloat16 by DeepGEMM."""

import torch
from deep_gemm import bf16_gemm_nt
from torch import Tensor

from tokenlight import kernels
from tokenlight.kernels import FORMATS, Format
from tokenlight_vendor_kernels import RANK

_ALIGNED = 8
"""Features per 16 bytes: what its copies take at a time."""


def register() -> None:
    """What the entry point names. How K is cut depends on the number of rows."""
    kernels.linear.implement(
        "deep_gemm",
        device="cuda",
        needs={"sm90"},
        dtypes={torch.bfloat16},
        stored={torch.bfloat16},
        formats={FORMATS["bf16"]},
        rank=RANK,
        is_row_invariant=False,
    )(multiply)


def multiply(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    """Keep the contract: `kernels.linear`'s docstring. Odd widths are the vendor's of torch."""
    (num_rows, k), n = x_TK.shape, len(weight)
    if k % _ALIGNED or n % _ALIGNED or not num_rows:
        return torch.nn.functional.linear(x_TK, weight, bias_N)
    y_TN = x_TK.new_empty(num_rows, n)
    bf16_gemm_nt(x_TK.contiguous(), weight, y_TN)
    return y_TN if bias_N is None else y_TN.add_(bias_N)
