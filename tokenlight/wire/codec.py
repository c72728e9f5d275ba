# SPDX-License-Identifier: Apache-2.0
"""MessagePack codec for the messages, and token ids as packed int32."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from tokenlight.wire.messages import FromEngine, ToEngine

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: ToEngine | FromEngine) -> bytes:
    """Any message as bytes."""
    return _encoder.encode(message)


def decode_to_engine(data: bytes) -> ToEngine:
    """Raises msgspec.ValidationError or msgspec.DecodeError on bytes that are no such message."""
    return _to_engine.decode(data)


def decode_from_engine(data: bytes) -> FromEngine:
    """Raises msgspec.ValidationError or msgspec.DecodeError on bytes that are no such message."""
    return _from_engine.decode(data)


def pack_token_ids(token_ids: Sequence[int]) -> bytes:
    """Token ids as little-endian int32; 4 bytes each."""
    return array("i", token_ids).tobytes()


def unpack_token_ids(data: bytes) -> memoryview[int]:
    """The inverse of `pack_token_ids`: the ids where they lie, as int32 for numpy to read there."""
    return memoryview(data).cast("i")
