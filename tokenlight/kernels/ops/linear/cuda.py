# SPDX-License-Identifier: Apache-2.0
"""Few rows by `cuda.cu`, at the speed of memory; more by the vendor's library.

Row-invariant up to `MAX_ROWS` rows a call: the vendor chooses a kernel by the number of rows, and
adds in another order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from tokenlight.kernels.contract import TUNED, Op
from tokenlight.kernels.cuda import Source, portable
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.ops.linear.contract import linear

P = ParamSpec("P")
R = TypeVar("R")

MAX_ROWS = 16
_BF16 = frozenset({torch.bfloat16})
_SOURCE = Source(Path(__file__).with_name("cuda.cu"))
_THREADS = 32 * 9


class _Plan(NamedTuple):
    """How a family of kernels is launched: `cuda.cu` says so in its last lines."""

    chunks: int
    stages: int

    @property
    def shared_bytes(self) -> int:
        return self.stages * 16 * (2 * 8 * 32 * self.chunks + 64)


_PLANS = {
    "linear": _Plan(chunks=4, stages=3),
    "norm_linear": _Plan(chunks=2, stages=4),
    "linear_silu_mul": _Plan(chunks=2, stages=4),
    "norm_linear_silu_mul": _Plan(chunks=2, stages=4),
}
_OUTPUTS = 16
"""Of a block."""


class _Params(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("w", "x", "bias", "residual", "gain", "y")),
        *((name, ctypes.c_int) for name in ("n", "k", "m", "x_stride", "residual_stride")),
        ("eps", ctypes.c_float),
    )


class Around(NamedTuple):
    """What is fused around a product."""

    gain_K: Tensor | None = None
    """Take `rms_norm` of the rows first, with this gain and `eps`."""
    eps: float = 0.0
    bias_N: Tensor | None = None
    residual_TN: Tensor | None = None
    """Added to the result."""
    has_silu_mul: bool = False
    """`silu_mul` of the result is taken."""


def serves(x_TK: Tensor) -> bool:
    """Whether `few_rows` takes these: 16-byte loads, and no more rows than pay."""
    k = x_TK.shape[1]
    return x_TK.shape[0] <= MAX_ROWS and k % 8 == 0 and x_TK.stride(0) % 8 == 0 and k > 0


def few_rows(x_TK: Tensor, weight: Tensor, around: Around) -> Tensor:
    """Multiply and what is around it. `serves` must hold."""
    num_rows, k = x_TK.shape
    n = weight.shape[0]
    if weight.shape[1] != k or not weight.is_contiguous() or x_TK.stride(1) != 1:
        raise ValueError(
            f"want contiguous rows of {k} features, got a weight of {list(weight.shape)}"
        )
    for part in (around.gain_K, around.bias_N):
        if part is not None and not (part.is_contiguous() and part.dtype is torch.bfloat16):
            raise ValueError(f"want contiguous bfloat16, got {part.dtype} {list(part.shape)}")
    residual = around.residual_TN
    width = n // 2 if around.has_silu_mul else n
    y_TN = torch.empty(num_rows, width, dtype=x_TK.dtype, device=x_TK.device)
    if not num_rows or not width:
        return y_TN
    params = _Params(
        weight.data_ptr(),
        x_TK.data_ptr(),
        None if around.bias_N is None else around.bias_N.data_ptr(),
        None if residual is None else residual.data_ptr(),
        None if around.gain_K is None else around.gain_K.data_ptr(),
        y_TN.data_ptr(),
        *(n, k, num_rows, x_TK.stride(0), 0 if residual is None else residual.stride(0)),
        around.eps,
    )
    name = "norm_" * (around.gain_K is not None) + "linear" + "_silu_mul" * around.has_silu_mul
    kernel = _SOURCE.kernel(
        f"{name}_{8 if num_rows <= 8 else 16}",
        threads=_THREADS,
        shared_bytes=_PLANS[name].shared_bytes,
    )
    kernel.launch((-(-width // _OUTPUTS), 1), params)
    return y_TN


def many_rows(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None) -> Tensor:
    """The vendor's product; rows too few for it are of a width that `few_rows` does not take."""
    if x_TK.shape[0] > MAX_ROWS:
        return torch.nn.functional.linear(x_TK, weight, bias_N)
    run = portable(linear, x_TK, weight, bias_N, format=FORMATS["bf16"])
    return run(x_TK, weight, bias_N, format=FORMATS["bf16"])


def product_of(op: Op[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Registers what is built of `few_rows` and `many_rows`."""
    return op.implement(
        "cuda",
        device="cuda",
        needs={"sm90"},
        dtypes=_BF16,
        stored=_BF16,
        formats={FORMATS["bf16"]},
        rank=TUNED,
        is_row_invariant=False,
    )


@product_of(linear)
def cuda(x_TK: Tensor, weight: Tensor, bias_N: Tensor | None, *, format: Format) -> Tensor:
    if serves(x_TK):
        return few_rows(x_TK, weight, Around(bias_N=bias_N))
    return many_rows(x_TK, weight, bias_N)
