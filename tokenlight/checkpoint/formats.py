# SPDX-License-Identifier: Apache-2.0
"""How tensors are stored in files: the formats we read, and the geometry of their blocks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """A row of a tensor is a run of blocks: `block_elements` numbers in `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row; `num_elements` is a multiple of `block_elements`."""
        return num_elements // self.block_elements * self.block_bytes


STORED_FORMATS: dict[str, StoredFormat] = {
    stored.name: stored
    for stored in (
        StoredFormat("f32", 1, 4),
        StoredFormat("f16", 1, 2),
        StoredFormat("bf16", 1, 2),
        StoredFormat("q4_0", 32, 18),
        StoredFormat("q4_1", 32, 20),
        StoredFormat("q5_0", 32, 22),
        StoredFormat("q5_1", 32, 24),
        StoredFormat("q8_0", 32, 34),
        StoredFormat("q2_k", 256, 84),
        StoredFormat("q3_k", 256, 110),
        StoredFormat("q4_k", 256, 144),
        StoredFormat("q5_k", 256, 176),
        StoredFormat("q6_k", 256, 210),
        StoredFormat("iq4_nl", 32, 18),
        StoredFormat("mxfp4", 32, 17),
    )
}
# Numbers that only a layer can read: halves of a format that a checkpoint stores apart.
BYTES = StoredFormat("u8", 1, 1)
