# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's own file, tokenizer.model: a protobuf of which five fields matter here."""

import struct
from collections.abc import Iterator
from pathlib import Path

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.text.tokenizer.sentencepiece import SentencePieceModel
from tokenlight.text.tokenizer.typed_tokens import TokenType, TypedTokens

MAX_FILE_BYTES = 64 << 20

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# ModelProto's fields, and those of the messages in it.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_MODEL_TYPE, _BPE = 3, 2
_CHARACTER_MAP, _ADDS_SPACE, _STRIPS_SPACES = 2, 3, 4

Value = int | bytes


def read_spm_file(path: Path) -> SentencePieceModel:
    """Read the file.

    Raises:
        CheckpointCorrupt: it is not a SentencePiece model.
        UnsupportedCheckpoint: it is one of another kind than BPE, or it changes characters.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CheckpointCorrupt(f"{path}: has more than {MAX_FILE_BYTES} bytes")
        return _read(path, path.read_bytes())
    except (IndexError, TypeError, ValueError, struct.error) as fault:
        raise CheckpointCorrupt(f"{path}: is not a SentencePiece model: {fault}") from fault


def _read(path: Path, raw: bytes) -> SentencePieceModel:
    pieces: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for field, value in _fields(raw):
        if field == _PIECES:
            piece = dict(_fields(_message(value)))
            pieces.append(_message(piece[_PIECE_TEXT]).decode() if _PIECE_TEXT in piece else "")
            [score] = struct.unpack("<f", _message(piece.get(_PIECE_SCORE, bytes(4))))
            scores.append(score)
            types.append(_number(piece.get(_PIECE_TYPE, TokenType.NORMAL)))
        elif field == _TRAINER:
            trainer = dict(_fields(_message(value)))
        elif field == _NORMALIZER:
            normalizer = dict(_fields(_message(value)))
    if not pieces:
        raise ValueError("it has no pieces")
    if trainer.get(_TRAINER_MODEL_TYPE) != _BPE:
        raise UnsupportedCheckpoint(f"{path}: is no BPE; use a checkpoint with a tokenizer.json")
    if normalizer.get(_CHARACTER_MAP) or normalizer.get(_STRIPS_SPACES, 1):
        raise UnsupportedCheckpoint(
            f"{path}: changes a text's characters before it is tokenised; "
            f"use a checkpoint with a tokenizer.json"
        )
    return SentencePieceModel(
        typed=TypedTokens(pieces, types),
        scores=scores,
        adds_space=bool(normalizer.get(_ADDS_SPACE, 1)),
    )


def _fields(raw: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of one message, numbers as numbers and all else as bytes."""
    position = 0
    while position < len(raw):
        key, position = _varint(raw, position)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value: Value
            value, position = _varint(raw, position)
        else:
            num_bytes = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if kind == _BYTES:
                num_bytes, position = _varint(raw, position)
            if num_bytes is None or position + num_bytes > len(raw):
                raise ValueError(f"field {field} at byte {position} is cut short or unknown")
            value = raw[position : position + num_bytes]
            position += num_bytes
        yield field, value


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"the number before byte {position} is too long")


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number stands where a message should")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError("a message stands where a number should")
    return value
