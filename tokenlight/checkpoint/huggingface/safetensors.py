# SPDX-License-Identifier: Apache-2.0
"""Reads a safetensors header: a length, JSON that places each tensor, then the tensors.

Nothing it says is believed before it is checked against the file's length.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import TensorEntry
from tokenlight.checkpoint.formats import BYTES, STORED_FORMATS, StoredFormat

# The format's own limit.
MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8
FORMATS = {
    "F32": STORED_FORMATS["f32"],
    "F16": STORED_FORMATS["f16"],
    "BF16": STORED_FORMATS["bf16"],
    "U8": BYTES,
}
# Parts of quantized matrices: no tensor of such a type means anything alone.
PART_FORMATS = {
    "F8_E4M3": StoredFormat("f8_e4m3", 1, 1),
    "F8_E8M0": StoredFormat("f8_e8m0", 1, 1),
    "I32": StoredFormat("i32", 1, 4),
    "I64": StoredFormat("i64", 1, 8),
}


def read_safetensors(path: Path, *, with_parts: bool = False) -> dict[str, TensorEntry]:
    """The file's tensors, in the order in which they lie.

    Args:
        path: the file.
        with_parts: whether tensors may be of `PART_FORMATS` as well.

    Raises:
        CheckpointNotFound: there is no file to read.
        CheckpointCorrupt: the file is cut short or contradicts itself.
        UnsupportedCheckpoint: a tensor is of a type that we do not read.
    """
    try:
        with path.open("rb") as file:
            num_bytes = path.stat().st_size
            header_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if header_bytes > min(MAX_HEADER_BYTES, num_bytes - LENGTH_BYTES):
                raise CheckpointCorrupt(
                    f"{path}: the header claims {header_bytes} bytes, but the file has "
                    f"{num_bytes}: it is cut short or not a safetensors file; download it again"
                )
            header = _parse(path, file.read(header_bytes))
    except OSError as fault:
        raise CheckpointNotFound(f"{path}: cannot be read: {fault.strerror}") from fault
    header.pop("__metadata__", None)
    start = LENGTH_BYTES + header_bytes
    known = FORMATS | PART_FORMATS if with_parts else FORMATS
    entries = [_entry(path, name, row, start, known) for name, row in header.items()]
    return _checked_places(path, entries, start, num_bytes)


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    def no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is there twice")
        return found

    try:
        header = json.loads(raw, object_pairs_hook=no_twins)
    except (ValueError, RecursionError) as fault:
        raise CheckpointCorrupt(f"{path}: the header is not sound JSON: {fault}") from fault
    if not isinstance(header, dict):
        raise CheckpointCorrupt(f"{path}: the header is not a JSON object")
    return header


def _entry(
    path: Path, name: str, row: Any, start: int, known: Mapping[str, StoredFormat]
) -> TensorEntry:
    row = row if isinstance(row, dict) else {}
    shape, offsets = row.get("shape"), row.get("data_offsets")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise CheckpointCorrupt(f"{path}: tensor {name!r} has no shape or no place")
    dtype = row.get("dtype")
    if not isinstance(dtype, str) or dtype not in known:
        raise UnsupportedCheckpoint(
            f"{path}: tensor {name!r} is stored as {dtype}, which is not supported; "
            f"supported are {', '.join(known)}"
        )
    stored = known[dtype]
    num_bytes = prod(shape) * stored.block_bytes
    if offsets[1] - offsets[0] != num_bytes:
        raise CheckpointCorrupt(
            f"{path}: tensor {name!r} of shape {shape} takes {num_bytes} bytes, "
            f"but its place is from {offsets[0]} to {offsets[1]}"
        )
    return TensorEntry(
        name=name,
        shape=tuple(shape),
        format=stored.name,
        path=path,
        offset_bytes=start + offsets[0],
        num_bytes=num_bytes,
    )


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)


def _checked_places(
    path: Path, entries: Sequence[TensorEntry], start: int, num_bytes: int
) -> dict[str, TensorEntry]:
    end, previous = start, ""
    placed = {}
    for entry in sorted(entries, key=lambda each: (each.offset_bytes, each.num_bytes)):
        if entry.offset_bytes < end:
            raise CheckpointCorrupt(f"{path}: tensors {previous!r} and {entry.name!r} overlap")
        end, previous = entry.offset_bytes + entry.num_bytes, entry.name
        if end > num_bytes:
            raise CheckpointCorrupt(
                f"{path}: tensor {entry.name!r} ends at byte {end}, but the file has {num_bytes}: "
                f"it is cut short, download it again"
            )
        placed[entry.name] = entry
    return placed
