# SPDX-License-Identifier: Apache-2.0
"""Matrices of one shape on top of each other, as experts are: each is packed by itself.

Shapes: E matrices, N rows of each, K elements per row.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.base.errors import UnsupportedCheckpoint
from tokenlight.kernels import FORMATS, Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.weights.pack import pack_rows
from tokenlight.weights.slot import Target
from tokenlight.weights.stored import DENSE_DTYPES, StoredTensor


def stack(each: Sequence[StoredTensor]) -> StoredTensor:
    """Tensors of one shape and format as one, a copy.

    Raises:
        UnsupportedCheckpoint: they are not of one format.
    """
    first = each[0]
    for other in each:
        if other.format != first.format:
            raise UnsupportedCheckpoint(
                f"tensors {first.name!r} and {other.name!r} are stored as {first.format} and "
                f"{other.format}; experts of different formats are not supported"
            )
    rows = torch.stack([one.rows for one in each])
    return replace(first, shape=(len(each), *first.shape), rows=rows)


def pack_stacked(parts: Sequence[StoredTensor], target: Target) -> tuple[Tensor, Format]:
    """For each of E, its rows of all parts under each other, packed.

    Args:
        parts: each [E, n, K]; quantized ones of different formats become float32.
        target: where they will be read.

    Returns:
        Dense [E, N, K] or bytes [E, N, row_bytes], and what they are.
    """
    if len({part.format for part in parts}) > 1:
        parts = [_as_float32(part) for part in parts]
    num_matrices = parts[0].shape[0]
    by_matrix = list(zip(*map(_apart, parts), strict=True))
    if sum(part.shape[1] for part in parts) % kernels.TILE_ROWS == 0:
        # No tile has rows of two matrices: under each other they are packed as if each were alone.
        weight, packed_format = pack_rows([one for group in by_matrix for one in group], target)
        return weight.view(num_matrices, -1, weight.shape[1]), packed_format
    packed, packed_format = None, parts[0].format
    at_once = target._replace(pack_queue=None)
    for index, group in enumerate(by_matrix):
        one, packed_format = pack_rows(group, at_once)
        if packed is None:
            packed = one.new_empty(num_matrices, *one.shape)
        packed[index] = one
    assert packed is not None
    return packed, packed_format


def _apart(stored: StoredTensor) -> list[StoredTensor]:
    """Each of the E."""
    return [replace(stored, shape=stored.shape[1:], rows=rows) for rows in matrices(stored)]


def matrices(stored: StoredTensor) -> Tensor:
    """Its bytes as [E, N, row_bytes]."""
    return stored.rows.reshape(*stored.shape[:-1], stored.format.row_bytes(stored.shape[-1]))


def dequantized_rows(stored: StoredTensor) -> Tensor:
    """The numbers of a matrix, or of several: float32 [..., K], row after row."""
    if stored.format.is_dense:
        return stored.dense(torch.float32).view(-1, stored.shape[-1])
    rows = stored.rows.reshape(-1, stored.format.row_bytes(stored.shape[-1]))
    return dequantize(rows, stored.format)


def as_dense_like(stored: StoredTensor, numbers: Tensor) -> StoredTensor:
    """Other numbers in its place: of its format if that is dense, else float32."""
    dense = stored.format if stored.format.is_dense else FORMATS["f32"]
    rows = numbers.to(DENSE_DTYPES[dense.name]).contiguous().view(torch.uint8)
    return replace(stored, shape=tuple(numbers.shape), format=dense, rows=rows)


def _as_float32(stored: StoredTensor) -> StoredTensor:
    return as_dense_like(stored, dequantized_rows(stored).view(stored.shape))
