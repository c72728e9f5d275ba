# SPDX-License-Identifier: Apache-2.0
"""The values of a GGUF header, with typed look-ups. Arrays stay bytes until they are asked for."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tokenlight.base.errors import CheckpointCorrupt

T = TypeVar("T")
Scalar = int | float | bool | str

STRING = "string"
# GGUF's value types by id, as struct codes; id 7 is a bool, 8 a string and 9 an array.
NUMBER_CODES = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """An array as it lies in the file: a struct code or STRING, and bytes of checked bounds."""

    code: str
    num_elements: int
    raw: bytes = field(repr=False)

    def numbers(self) -> list[int | float]:
        return list(struct.unpack(f"<{self.num_elements}{self.code}", self.raw))

    def strings(self) -> list[str]:
        """Decode length-prefixed strings.

        Raises:
            UnicodeDecodeError: one of them is not UTF-8.
        """
        raw, position, found = self.raw, 0, []
        for _ in range(self.num_elements):
            start = position + 8
            position = start + int.from_bytes(raw[position:start], "little")
            found.append(str(raw[start:position], "utf-8"))
        return found


class Metadata(Mapping[str, Scalar | Array]):
    """What a GGUF file says of its model. `find_` returns None for an absent key, `get_` raises."""

    def __init__(self, path: Path, values: Mapping[str, Scalar | Array]) -> None:
        self.path = path
        self._values = values

    def __getitem__(self, key: str) -> Scalar | Array:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def find_int(self, key: str) -> int | None:
        value = self.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "a whole number")

    def find_float(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise self._wrong(key, "a number")

    def find_bool(self, key: str) -> bool | None:
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false")

    def find_string(self, key: str) -> str | None:
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string")

    def find_strings(self, key: str) -> list[str] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Array) or value.code != STRING:
            raise self._wrong(key, "a list of strings")
        try:
            return value.strings()
        except UnicodeDecodeError as fault:
            raise CheckpointCorrupt(
                f"{self.path}: the GGUF value {key!r} has a string that is not UTF-8"
            ) from fault

    def find_numbers(self, key: str) -> list[int | float] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Array) or value.code in (STRING, "?"):
            raise self._wrong(key, "a list of numbers")
        return value.numbers()

    def get_int(self, key: str) -> int:
        return self._get(key, self.find_int(key))

    def get_float(self, key: str) -> float:
        return self._get(key, self.find_float(key))

    def get_string(self, key: str) -> str:
        return self._get(key, self.find_string(key))

    def get_strings(self, key: str) -> list[str]:
        return self._get(key, self.find_strings(key))

    def _get(self, key: str, value: T | None) -> T:
        if value is None:
            raise CheckpointCorrupt(
                f"{self.path}: the GGUF value {key!r} is missing; the file was made by a broken "
                f"converter or cut short: convert or download it again"
            )
        return value

    def _wrong(self, key: str, wanted: str) -> CheckpointCorrupt:
        value = self[key]
        kind = "an array" if isinstance(value, Array) else type(value).__name__
        return CheckpointCorrupt(f"{self.path}: the GGUF value {key!r} must be {wanted}, is {kind}")
