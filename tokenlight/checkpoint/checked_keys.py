# SPDX-License-Identifier: Apache-2.0
"""A configuration's keys, asked for one checked value after the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint.rope_config import is_positive_number

# No real model comes near; what is above is a broken file.
MAX_SIZE = 1 << 24
MAX_CONTEXT_TOKENS = 1 << 31


class CheckedKeys:
    """`spelled` is what the file itself calls a key, for errors."""

    def __init__(self, path: Path, source: Mapping[str, Any], spelled: Mapping[str, str]) -> None:
        self.path = path
        self.source = source
        self._spelled = spelled

    def size(self, key: str, default: int | None = None, *, limit: int = MAX_SIZE) -> int:
        found = self.source.get(key)
        found = default if found is None else found
        if found is None:
            raise self.corrupt(f"{self.name(key)} is missing")
        if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= limit:
            raise self.corrupt(f"{self.name(key)} is {found!r}; it must be from 1 to {limit}")
        return found

    def positive(self, key: str, default: float | None = None) -> float:
        found = self.source.get(key)
        found = default if found is None else found
        if found is None or not is_positive_number(found):
            raise self.corrupt(f"{self.name(key)} is {found!r}; it must be a positive number")
        return float(found)

    def flag(self, key: str) -> bool:
        found = self.source[key]
        if not isinstance(found, bool):
            raise self.corrupt(f"{key} is {found!r}; it must be true or false")
        return found

    def name(self, key: str) -> str:
        return self._spelled.get(key, key)

    def corrupt(self, what: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(f"{self.path}: {what}")

    def unsupported(self, what: str) -> UnsupportedCheckpoint:
        return UnsupportedCheckpoint(f"{self.path}: {what}")
