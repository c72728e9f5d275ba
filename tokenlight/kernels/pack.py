# SPDX-License-Identifier: Apache-2.0
"""Weights into the layout of the implementation that will read them, once, at load."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.contract import REFERENCE, Site
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.formats.tile16 import TILE16, pack_tile16
from tokenlight.kernels.ops.linear import linear
from tokenlight.kernels.weight_memory import weight_memory

_DENSE_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_DENSE_NAMES = {dtype: name for name, dtype in _DENSE_DTYPES.items()}
# layout -> (the formats that it exists for, its packer)
_Packer = Callable[[Sequence[Tensor], Format, _cpu.PackQueue | None], Tensor]
_LAYOUTS: dict[str, tuple[dict[str, Format], _Packer]] = {
    "tile16": (TILE16, pack_tile16),
}


class PackedLinear(NamedTuple):
    weight: Tensor
    format: Format


def pack_linear(
    weight_bytes: Tensor | Sequence[Tensor],
    weight_format: Format,
    n: int,
    k: int,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    queue: _cpu.PackQueue | None = None,
) -> PackedLinear:
    """A checkpoint's weight as `linear` and `embedding` of this machine want it.

    Args:
        weight_bytes: in layout `rows`, one tensor, or several that shall lie under each other:
            uint8 (a dense weight may have its own dtype instead), contiguous, or [..., row_bytes]
            in any order of the rows.
        weight_format: what the bytes are.
        n: rows (out features, or the vocabulary).
        k: weights per row (in features).
        device: where the weight will be read; on "meta" nothing is packed.
        dtype: of the activations that it will meet.
        queue: where a new layout may wait to be made: the result has numbers once it is finished.

    Returns:
        Dense [n, k], or uint8 [n, row_bytes] in the layout of the best implementation. What needs
        no new layout shares memory with `weight_bytes`, if that is one tensor. For a GPU that has
        no kernel for the format, weights of `dtype`.
    """
    if device == "meta":
        return PackedLinear(_without_numbers(weight_format, n, k), weight_format)
    if k % weight_format.block_elements:
        raise ValueError(
            f"a row of {k} weights is no whole number of {weight_format} blocks of "
            f"{weight_format.block_elements}"
        )
    row_bytes = weight_format.row_bytes(k)
    given = [weight_bytes] if isinstance(weight_bytes, Tensor) else weight_bytes
    parts = [_as_rows(part, row_bytes) for part in given]
    num_bytes = sum(part.numel() for part in parts)
    if num_bytes != n * row_bytes or any(part.shape[-1] != row_bytes for part in parts):
        raise ValueError(
            f"{n} rows of {k} {weight_format} weights are {n * row_bytes} bytes, got {num_bytes}"
        )
    best = packed_format(weight_format, device, dtype)
    if best != weight_format and best.is_dense:
        return PackedLinear(_numbers(parts, weight_format, n, k, dtype), best)
    if best != weight_format:
        return PackedLinear(_LAYOUTS[best.layout][1](parts, weight_format, queue), best)
    flat = [part.reshape(-1, row_bytes) for part in parts]
    rows = flat[0]
    if len(flat) > 1 and rows.device.type != "cpu":
        rows = torch.cat(flat)
    elif len(flat) > 1:
        rows = weight_memory.allocate(num_bytes).view(n, row_bytes)
        torch.cat(flat, out=rows)
    return PackedLinear(
        rows.view(_DENSE_DTYPES[weight_format.name]) if weight_format.is_dense else rows, best
    )


def packed_format(weight_format: Format, device: str, dtype: torch.dtype) -> Format:
    """What `pack_linear` makes of a format for activations of `dtype`.

    The layout whose implementation of `linear` ranks highest; on a GPU that has none, dense.
    """
    candidates = [weight_format] + [
        f[weight_format.name] for f, _ in _LAYOUTS.values() if weight_format.name in f
    ]
    ranks = {f: linear.bind(_site(device, dtype, f)).rank for f in candidates}
    best = max(candidates, key=lambda f: ranks[f])
    if device == "cuda" and ranks[best] == REFERENCE:
        return FORMATS[_DENSE_NAMES[dtype]]
    return best


def _without_numbers(weight_format: Format, n: int, k: int) -> Tensor:
    """Rows of whole blocks, so that even a part of a row that cuts one has a size."""
    if weight_format.is_dense:
        return torch.empty(n, k, dtype=_DENSE_DTYPES[weight_format.name], device="meta")
    num_blocks = -(-k // weight_format.block_elements)
    row_bytes = num_blocks * weight_format.block_bytes
    return torch.empty(n, row_bytes, dtype=torch.uint8, device="meta")


def _as_rows(weight_bytes: Tensor, row_bytes: int) -> Tensor:
    """Bytes [..., row_bytes] where they are; of another shape if they are no such rows."""
    raw = weight_bytes.view(torch.uint8)
    can_be_cut = raw.is_contiguous() and raw.numel() % row_bytes == 0
    return raw.view(-1, row_bytes) if can_be_cut else raw


def _site(device: str, dtype: torch.dtype, weight_format: Format) -> Site:
    return Site(device, dtype, _DENSE_DTYPES.get(weight_format.name, torch.uint8), weight_format)


def _numbers(
    parts: Sequence[Tensor], weight_format: Format, n: int, k: int, dtype: torch.dtype
) -> Tensor:
    """Weights that no kernel of a GPU reads: as numbers of the activations' type, once, at load."""
    weight = torch.empty(n, k, dtype=dtype, device=parts[0].device)
    done = 0
    for part in parts:
        # In pieces: as float32 they take up to eight times their bytes.
        for rows in part.reshape(-1, part.shape[-1]).split(4096):
            numbers = rows.view(_DENSE_DTYPES.get(weight_format.name, torch.uint8))
            weight[done : done + len(rows)] = dequantize(numbers, weight_format)
            done += len(rows)
    return weight
