# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF header. Nothing it says is believed before it is checked against the file's length.

Layout, little-endian: magic, version, number of tensors, number of values; the values; the tensor
table; padding to the alignment; the tensors, whose offsets count from there.
"""

import mmap
import struct
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from math import prod
from pathlib import Path

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import TensorEntry
from tokenlight.checkpoint.formats import STORED_FORMATS
from tokenlight.checkpoint.metadata import NUMBER_CODES, STRING, Array, Metadata, Scalar

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Far above what any model has, low enough that a wrong number never costs memory or minutes.
MAX_STRING_BYTES = 64 << 20
MAX_ARRAY_ELEMENTS = 1 << 24
MAX_VALUES = 1 << 16
MAX_TENSORS = 1 << 20
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20

# The type ids of the format's definition. Those that STORED_FORMATS lacks are named in errors.
TYPE_NAMES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1",
    10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs",
    17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs",
    24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 30: "bf16", 34: "tq1_0",
    35: "tq2_0", 39: "mxfp4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufHeader:
    metadata: Metadata
    tensors: dict[str, TensorEntry]
    num_bytes: int


def read_header(path: Path) -> GgufHeader:
    """Read and check a GGUF file's header.

    Raises:
        CheckpointNotFound: there is no file to read.
        CheckpointCorrupt: the file is cut short or contradicts itself.
        UnsupportedCheckpoint: it is of a version, byte order or tensor type that we do not read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _Reader(path, view).read()
    except ValueError as fault:  # an empty file cannot be mapped
        raise CheckpointCorrupt(f"{path}: the file is empty; download it again") from fault
    except OSError as fault:
        raise CheckpointNotFound(f"{path}: cannot be read: {fault.strerror}") from fault


class _Reader:
    """A position in a mapped file that never moves past its end."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        self._path = path
        self._view = view
        self._limit = len(view)
        self._position = 0

    def read(self) -> GgufHeader:
        self._read_magic_and_version()
        num_tensors = self._count("tensors", MAX_TENSORS, least_bytes=25)
        num_values = self._count("values", MAX_VALUES, least_bytes=13)
        metadata = Metadata(self._path, self._read_values(num_values))
        entries = [self._read_tensor_row() for _ in range(num_tensors)]
        alignment = metadata.find_int("general.alignment") or DEFAULT_ALIGNMENT
        if alignment & (alignment - 1) or not 0 < alignment <= MAX_ALIGNMENT:
            raise self._corrupt(
                f"general.alignment must be a power of two up to {MAX_ALIGNMENT}, is {alignment}"
            )
        tensors_start = -(-self._position // alignment) * alignment
        return GgufHeader(metadata, self._place(entries, tensors_start, alignment), self._limit)

    def _read_magic_and_version(self) -> None:
        magic = self._take(4, "the magic")
        if magic != MAGIC:
            raise CheckpointCorrupt(f"{self._path}: not a GGUF file: it begins with {magic!r}")
        version = self._number("I", "the version")
        swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
        supported = " and ".join(map(str, VERSIONS))
        if version in VERSIONS:
            return
        if swapped in (1, *VERSIONS):
            raise UnsupportedCheckpoint(
                f"{self._path}: a big-endian GGUF file; only little-endian ones are supported"
            )
        if version in (1, VERSIONS[-1] + 1):
            raise UnsupportedCheckpoint(
                f"{self._path}: GGUF version {version} is not supported, versions {supported} are; "
                f"convert the model again"
            )
        raise self._corrupt(f"GGUF version {version} does not exist ({supported} are supported)")

    def _count(self, what: str, limit: int, *, least_bytes: int) -> int:
        count = int(self._number("Q", f"the number of {what}"))
        if count > limit or count * least_bytes > self._limit:
            raise self._corrupt(
                f"the header claims {count} {what}, which cannot be in {self._limit} bytes"
            )
        return count

    def _read_values(self, num_values: int) -> dict[str, Scalar | Array]:
        values: dict[str, Scalar | Array] = {}
        for index in range(num_values):
            key = self._string(f"the key of value {index}")
            if key in values:
                raise self._corrupt(f"the value {key!r} is there twice")
            type_id = int(self._number("I", f"the type of {key!r}"))
            if type_id == 9:
                values[key] = self._array(key)
            elif type_id == 8:
                values[key] = self._string(repr(key))
            elif type_id in NUMBER_CODES:
                values[key] = self._number(NUMBER_CODES[type_id], repr(key))
            else:
                raise self._corrupt(
                    f"the value {key!r} has the type {type_id}, which does not exist"
                )
        return values

    def _array(self, key: str) -> Array:
        type_id = int(self._number("I", f"the element type of {key!r}"))
        count = int(self._number("Q", f"the length of {key!r}"))
        if count > MAX_ARRAY_ELEMENTS:
            raise self._corrupt(f"{key!r} claims {count} elements, more than {MAX_ARRAY_ELEMENTS}")
        if type_id == 8:
            start = self._position
            self._skip_strings(count, key)
            return Array(STRING, count, self._view[start : self._position])
        if type_id not in NUMBER_CODES:
            raise self._corrupt(f"{key!r} is an array of the type {type_id}, which cannot be")
        code = NUMBER_CODES[type_id]
        return Array(code, count, self._take(count * struct.calcsize(f"<{code}"), repr(key)))

    def _skip_strings(self, count: int, key: str) -> None:
        view, position = self._view, self._position
        length_at = struct.Struct("<Q").unpack_from
        with suppress(struct.error, OverflowError):  # a length that is not in the file
            for _ in repeat(None, count):
                position += 8 + length_at(view, position)[0]
            if position <= self._limit:
                self._position = position
                return
        raise self._corrupt(f"the file ends within {key!r} ({count} strings)")

    def _read_tensor_row(self) -> TensorEntry:
        name = self._string("a tensor's name")
        num_dimensions = int(self._number("I", f"the number of dimensions of {name!r}"))
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._corrupt(
                f"tensor {name!r} has {num_dimensions} dimensions; 1 to {MAX_DIMENSIONS} can be"
            )
        row = struct.Struct(f"<{num_dimensions}QIQ")
        what = f"the shape, type and offset of {name!r}"
        *fastest_first, type_id, offset = row.unpack(self._take(row.size, what))
        shape = tuple(reversed(fastest_first))
        type_name = TYPE_NAMES.get(type_id)
        if type_name is None:
            raise self._corrupt(f"tensor {name!r} has the type {type_id}, which does not exist")
        stored = STORED_FORMATS.get(type_name)
        if stored is None:
            supported = ", ".join(STORED_FORMATS).upper()
            raise UnsupportedCheckpoint(
                f"{self._path}: tensor {name!r} is stored as {type_name.upper()}, "
                f"which is not supported; supported are {supported}"
            )
        if 0 in shape or shape[-1] % stored.block_elements:
            raise self._corrupt(
                f"tensor {name!r} has the shape {list(shape)}; rows of {type_name.upper()} are "
                f"multiples of {stored.block_elements} and no dimension is 0"
            )
        return TensorEntry(
            name=name,
            shape=shape,
            format=type_name,
            path=self._path,
            offset_bytes=offset,
            num_bytes=prod(shape[:-1]) * stored.row_bytes(shape[-1]),
        )

    def _place(
        self, entries: list[TensorEntry], tensors_start: int, alignment: int
    ) -> dict[str, TensorEntry]:
        placed: dict[str, TensorEntry] = {}
        end, previous = tensors_start, ""
        for entry in sorted(entries, key=lambda each: each.offset_bytes):
            start = tensors_start + entry.offset_bytes
            if entry.offset_bytes % alignment:
                raise self._corrupt(
                    f"tensor {entry.name!r} is at offset {entry.offset_bytes}, "
                    f"not a multiple of {alignment}"
                )
            if start < end:
                raise self._corrupt(f"tensors {previous!r} and {entry.name!r} overlap")
            end, previous = start + entry.num_bytes, entry.name
            if end > self._limit:
                raise self._corrupt(
                    f"tensor {entry.name!r} ends at byte {end}, but the file has {self._limit}: "
                    f"it is cut short, download it again"
                )
            if entry.name in placed:
                raise self._corrupt(f"tensor {entry.name!r} is there twice")
            placed[entry.name] = TensorEntry(
                name=entry.name,
                shape=entry.shape,
                format=entry.format,
                path=entry.path,
                offset_bytes=start,
                num_bytes=entry.num_bytes,
            )
        return placed

    def _string(self, what: str) -> str:
        num_bytes = int(self._number("Q", f"the length of {what}"))
        if num_bytes > MAX_STRING_BYTES:
            raise self._corrupt(f"{what} claims {num_bytes} bytes, more than {MAX_STRING_BYTES}")
        raw = self._take(num_bytes, what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as fault:
            raise self._corrupt(f"{what} is not UTF-8: {fault.reason}") from fault

    def _number(self, code: str, what: str) -> int | float | bool:
        layout = f"<{code}"
        value = struct.unpack(layout, self._take(struct.calcsize(layout), what))[0]
        assert isinstance(value, (int, float))
        return value

    def _take(self, num_bytes: int, what: str) -> bytes:
        end = self._position + num_bytes
        if end > self._limit:
            raise self._corrupt(
                f"the file ends within {what}: {num_bytes} bytes are needed there, "
                f"{self._limit - self._position} are left; it is cut short, download it again"
            )
        raw = self._view[self._position : end]
        self._position = end
        return raw

    def _corrupt(self, what: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(f"{self._path}: at byte {self._position}: {what}")
