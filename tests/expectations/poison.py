# SPDX-License-Identifier: Apache-2.0
"""A GGUF file with a token whose embedding is not a number, in all else the file that it was."""

import struct
from pathlib import Path

import gguf
import numpy as np

TABLE, HEAD = "token_embd.weight", "output.weight"
NAN_OF = {"F32": np.float32(np.nan).tobytes(), "F16": np.float16(np.nan).tobytes()}


def poison(path: Path, target: Path, token: int) -> Path:
    """Write `path` to `target` with `token` poisoned.

    A tied model gets a head of its own first, a copy of the clean table: else the poisoned token's
    logit would be no number for anybody.
    """
    reader = gguf.GGUFReader(path)
    whole = bytearray(path.read_bytes())
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    table = tensors[TABLE]
    clean = bytes(whole[table.data_offset : table.data_offset + int(table.n_bytes)])
    row_bytes = int(table.n_bytes) // int(table.shape[-1])
    start = table.data_offset + token * row_bytes
    whole[start : start + row_bytes] = _nan_row(table.tensor_type.name, row_bytes)
    if HEAD in tensors:
        target.write_bytes(whole)
        return target
    rows = [(t.field.offset, sum(part.nbytes for part in t.field.parts)) for t in reader.tensors]
    rows_end = max(offset + num_bytes for offset, num_bytes in rows)
    offset, num_bytes = table.field.offset, sum(part.nbytes for part in table.field.parts)
    shape_and_type = bytes(whole[offset + 8 + len(TABLE) : offset + num_bytes - 8])
    numbers = bytes(whole[reader.data_offset :])
    numbers += bytes(-len(numbers) % reader.alignment)
    head = struct.pack("<Q", len(HEAD)) + HEAD.encode() + shape_and_type
    head += struct.pack("<Q", len(numbers))
    (num_tensors,) = struct.unpack_from("<Q", whole, 8)
    struct.pack_into("<Q", whole, 8, num_tensors + 1)
    header = bytes(whole[:rows_end]) + head
    header += bytes(-len(header) % reader.alignment)
    target.write_bytes(header + numbers + clean)
    return target


def _nan_row(kind: str, row_bytes: int) -> bytes:
    if kind in NAN_OF:
        return NAN_OF[kind] * (row_bytes // len(NAN_OF[kind]))
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    # Each block begins with its scale in these types.
    assert kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K"), kind
    block = NAN_OF["F16"] + bytes(block_bytes - 2)
    return block * (row_bytes // block_bytes)
