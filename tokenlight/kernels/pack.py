# SPDX-License-Identifier: Apache-2.0
"""Weights into the layout of the implementation that will read them, once, at load."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels.contract import Site
from tokenlight.kernels.formats import Format
from tokenlight.kernels.formats.tile16 import TILE16, pack_tile16
from tokenlight.kernels.ops.linear import linear

_DENSE_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# layout -> (the formats that it exists for, its packer)
_LAYOUTS: dict[str, tuple[dict[str, Format], Callable[[Tensor, Format], Tensor]]] = {
    "tile16": (TILE16, pack_tile16),
}


class PackedLinear(NamedTuple):
    weight: Tensor
    format: Format


def pack_linear(
    weight_bytes: Tensor,
    weight_format: Format,
    n: int,
    k: int,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> PackedLinear:
    """A checkpoint's weight as `linear` and `embedding` of this machine want it.

    Args:
        weight_bytes: uint8, contiguous, in layout `rows`; a dense weight may have its own dtype
            instead.
        weight_format: what the bytes are.
        n: rows (out features, or the vocabulary).
        k: weights per row (in features).
        device: where the weight will be read.
        dtype: of the activations that it will meet.

    Returns:
        Dense [n, k], or uint8 [n, row_bytes] in the layout of the best implementation. Dense
        weights share memory with `weight_bytes`.
    """
    if k % weight_format.block_elements:
        raise ValueError(
            f"a row of {k} weights is no whole number of {weight_format} blocks of "
            f"{weight_format.block_elements}"
        )
    row_bytes = weight_format.row_bytes(k)
    raw = weight_bytes.contiguous().view(-1).view(torch.uint8)
    if raw.numel() != n * row_bytes:
        raise ValueError(
            f"{n} rows of {k} {weight_format} weights are {n * row_bytes} bytes, got {raw.numel()}"
        )
    if weight_format.is_dense:
        return PackedLinear(raw.view(_DENSE_DTYPES[weight_format.name]).view(n, k), weight_format)
    rows = raw.view(n, row_bytes)
    candidates = [weight_format] + [
        f[weight_format.name] for f, _ in _LAYOUTS.values() if weight_format.name in f
    ]
    best = max(candidates, key=lambda f: linear.bind(Site(device, dtype, torch.uint8, f)).rank)
    if best == weight_format:
        return PackedLinear(rows, best)
    return PackedLinear(_LAYOUTS[best.layout][1](rows, weight_format), best)
