# SPDX-License-Identifier: Apache-2.0
"""GGUF files byte by byte, right or wrong, by the format's own definition."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(key: str | bytes, type_id: int, payload: bytes) -> bytes:
    return string(key) + struct.pack("<I", type_id) + payload


def number(key: str, amount: int) -> bytes:
    return value(key, 4, struct.pack("<I", amount))


def text(key: str, content: str | bytes) -> bytes:
    return value(key, 8, string(content))


def array(key: str, element_type: int, count: int, payload: bytes) -> bytes:
    return value(key, 9, struct.pack("<IQ", element_type, count) + payload)


def tensor(name: str, shape: Sequence[int], *, type_id: int = 0, offset: int = 0) -> bytes:
    """A row of the tensor table; `shape` is fastest first, as in the file."""
    return (
        string(name)
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", type_id, offset)
    )


def llama_values() -> list[bytes]:
    return [
        text("general.architecture", "llama"),
        number("llama.block_count", 1),
        number("llama.context_length", 64),
        number("llama.embedding_length", 8),
        number("llama.feed_forward_length", 8),
        number("llama.attention.head_count", 2),
        number("llama.attention.head_count_kv", 1),
        value("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
    ]


@dataclass
class Gguf:
    """A small file that opens; a test breaks one thing of it."""

    values: list[bytes] = field(default_factory=llama_values)
    tensors: list[bytes] = field(default_factory=lambda: [tensor("token_embd.weight", (8, 4))])
    num_tensor_bytes: int = 128
    magic: bytes = b"GGUF"
    version: bytes = struct.pack("<I", 3)
    num_tensors: int | None = None
    num_values: int | None = None

    def to_bytes(self) -> bytes:
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_values = len(self.values) if self.num_values is None else self.num_values
        header = self.magic + self.version + struct.pack("<QQ", num_tensors, num_values)
        header += b"".join(self.values) + b"".join(self.tensors)
        return header + bytes(-len(header) % 32) + bytes(self.num_tensor_bytes)
