# SPDX-License-Identifier: Apache-2.0
"""Quantized matrices whose scales lie in tensors of their own, joined into rows of blocks.

FP8 keeps its bytes, beside a float32 scale per block; INT4 and MXFP4 become formats of GGUF that
are the same number for number (`kernels/formats/int4.py` says where they cannot).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint import TensorEntry
from tokenlight.checkpoint.checkpoint import ScaledParts
from tokenlight.kernels import FORMATS, Format
from tokenlight.kernels.formats.int4 import Int4, int4_rows, mxfp4_rows, unpack_awq, unpack_words
from tokenlight.kernels.formats.scaled import SCALED, block_scaled, group_of, parse_scaled

_DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8_e4m3": torch.float8_e4m3fn,
    "f8_e8m0": torch.float8_e8m0fnu,
    "i32": torch.int32,
    "u8": torch.uint8,
}
_FP8_NAN = 0x7F  # of either sign

Read = Callable[[TensorEntry], Tensor]


def scaled_format(entry: TensorEntry) -> Format:
    """What a matrix in several tensors is read as, as far as headers say.

    Raises:
        UnsupportedCheckpoint: its rows are no whole number of blocks.
    """
    if entry.format == "mxfp4":
        return FORMATS["mxfp4"]
    try:
        kind = parse_scaled(entry.format)
        group = group_of(kind.scales, entry.shape[1])
    except ValueError as fault:
        raise UnsupportedCheckpoint(f"{entry.path}: tensor {entry.name!r}: {fault}") from fault
    if kind.numbers == "int4":
        is_symmetric = entry.scaled is not None and entry.scaled.is_symmetric
        return FORMATS["q4_0" if is_symmetric else "q5_0"]
    return SCALED[f"{kind.numbers}_{group}"]


def read_scaled(entry: TensorEntry, parts: ScaledParts, read: Read) -> tuple[Tensor, Format]:
    """A matrix's rows, in new memory, and what they are.

    Args:
        entry: the matrix.
        parts: of which it is made.
        read: gives a tensor's bytes, uint8 in any shape.

    Raises:
        CheckpointCorrupt: the parts do not fit each other.
        UnsupportedCheckpoint: the rows are no whole number of blocks.
    """
    scaled_format(entry)
    try:
        if parts.packing == "pairs":
            exponents = _tensor(parts.scales, read).view(torch.uint8)
            return mxfp4_rows(_tensor(parts.numbers, read), exponents), FORMATS["mxfp4"]
        kind = parse_scaled(entry.format)
        if parts.packing == "rows":
            numbers = _tensor(parts.numbers, read)
            if _has_nan(numbers):
                raise ValueError("some are NaN")
            return block_scaled(numbers, _tensor(parts.scales, read).float(), kind)
        groups = None if parts.group_of is None else _tensor(parts.group_of, read)
        return int4_rows(_int4(entry, parts, read), groups)
    except (ValueError, RuntimeError, IndexError) as fault:
        shapes = ", ".join(f"{part.name!r} {list(part.shape)}" for part in parts.entries)
        raise CheckpointCorrupt(
            f"{entry.path}: the parts of {entry.name!r} ({shapes}) do not make a matrix of "
            f"{entry.format}: {fault}"
        ) from fault


def _tensor(entry: TensorEntry, read: Read) -> Tensor:
    if entry.format not in _DTYPES:
        raise ValueError(f"{entry.name!r} is stored as {entry.format}")
    return read(entry).reshape(-1).view(_DTYPES[entry.format]).view(entry.shape)


def _has_nan(numbers: Tensor) -> bool:
    magnitudes = numbers.view(torch.uint8).numpy() & _FP8_NAN  # numpy: several times torch's speed
    return bool((magnitudes == _FP8_NAN).any())


def _int4(entry: TensorEntry, parts: ScaledParts, read: Read) -> Int4:
    n, k = entry.shape
    num_groups = k // (parse_scaled(entry.format).scales.columns or k)
    words, scales = _tensor(parts.numbers, read), _tensor(parts.scales, read)
    if parts.packing == "words":
        numbers = unpack_words(words)
    elif parts.packing == "awq":
        numbers, scales = unpack_awq(words).T.contiguous(), scales.T
    else:
        numbers, scales = unpack_words(words.T), scales.T
    zeros = torch.full((n, num_groups), 8, dtype=torch.uint8)
    if parts.zeros is not None:
        zeros = _zeros(parts, _tensor(parts.zeros, read))[:n] + parts.zero_shift
    return Int4(numbers.view(n, k), scales.reshape(n, num_groups), zeros.view(n, num_groups))


def _zeros(parts: ScaledParts, words: Tensor) -> Tensor:
    """By rows of the matrix; beyond the last, what a word has left."""
    if parts.packing == "words":
        return unpack_words(words.T).T.contiguous()
    return (unpack_awq if parts.packing == "awq" else unpack_words)(words).T.contiguous()
