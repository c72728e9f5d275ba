# SPDX-License-Identifier: Apache-2.0
"""How weights are stored: dense types and the block types of GGUF, each in a layout.

Layout `rows` is the file's own. Other layouts permute the same bytes for an implementation's sake;
`kernels.pack_linear` makes them once, at load, and `formats/tile16.py` says what they are.
"""

from typing import NamedTuple


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
    f.name: f
    for f in (
        Format("f32", 1, 4),
        Format("f16", 1, 2),
        Format("bf16", 1, 2),
        Format("q4_0", 32, 18),
        Format("q4_1", 32, 20),
        Format("q5_0", 32, 22),
        Format("q5_1", 32, 24),
        Format("q8_0", 32, 34),
        Format("iq4_nl", 32, 18),
        Format("mxfp4", 32, 17),
        Format("q2_k", 256, 84),
        Format("q3_k", 256, 110),
        Format("q4_k", 256, 144),
        Format("q5_k", 256, 176),
        Format("q6_k", 256, 210),
    )
}

__all__ = ["FORMATS", "Format"]
