# SPDX-License-Identifier: Apache-2.0
"""How weights are stored: dense types and the block types of GGUF, each in a layout.

Layout `rows` is the file's own; its block sizes are those of `checkpoint`. Other layouts permute
the same bytes for an implementation's sake; `kernels.pack_linear` makes them once, at load, and
`formats/tile16.py` says what they are.
"""

from typing import NamedTuple

from tokenlight.checkpoint import STORED_FORMATS


class Format(NamedTuple):
    """A weight type and its layout. A row is K / block_elements blocks of block_bytes bytes."""

    name: str
    block_elements: int
    block_bytes: int
    layout: str = "rows"

    @property
    def is_dense(self) -> bool:
        """Whether weights are plain floats: one element is one block."""
        return self.block_elements == 1

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` weights."""
        return k // self.block_elements * self.block_bytes

    def __str__(self) -> str:
        return self.name if self.layout == "rows" else f"{self.name}/{self.layout}"


FORMATS: dict[str, Format] = {
    name: Format(name, stored.block_elements, stored.block_bytes)
    for name, stored in STORED_FORMATS.items()
}

DENSE = frozenset(f for f in FORMATS.values() if f.is_dense)

__all__ = ["DENSE", "FORMATS", "Format"]
