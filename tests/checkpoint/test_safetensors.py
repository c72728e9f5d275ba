# SPDX-License-Identifier: Apache-2.0
"""The safetensors header reader agrees with the safetensors package, and names what is broken."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tokenlight.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointNotFound,
    UnsupportedCheckpoint,
)
from tokenlight.checkpoint.huggingface.safetensors import read_safetensors

NUM_MUTANTS = 3000


def test_agrees_with_the_package(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        "a": torch.randn(3, 5),
        "b.half": torch.randn(7).half(),
        "c.brain": torch.randn(2, 2, 2).bfloat16(),
        "scalar": torch.tensor(4.0),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    entries = read_safetensors(path)
    content = path.read_bytes()
    with safe_open(path, framework="pt") as theirs:
        assert set(entries) == set(theirs.keys())
        for name, entry in entries.items():
            tensor = theirs.get_tensor(name)
            assert entry.shape == tuple(tensor.shape)
            place = slice(entry.offset_bytes, entry.offset_bytes + entry.num_bytes)
            flat = (
                tensor.reshape(-1).view(torch.uint8)
                if tensor.ndim
                else tensor[None].view(torch.uint8)
            )
            assert content[place] == flat.numpy().tobytes()
    assert {entry.format for entry in entries.values()} == {"f32", "f16", "bf16"}


def file_of(header: Any, num_bytes: int = 64, *, header_bytes: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(raw) if header_bytes is None else header_bytes
    return struct.pack("<Q", length) + raw + bytes(num_bytes)


def row(shape: list[Any], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


CORRUPT: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file has 0"),
    "short": (b"\x01", "claims 1 bytes"),
    "huge header": (file_of({}, header_bytes=1 << 62), "claims 4611686018427387904 bytes"),
    "not JSON": (file_of(b"{nonsense"), "not sound JSON"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "not sound JSON"),
    "too deep": (file_of(b"[" * 100_000), "not sound JSON"),
    "not an object": (file_of(b"[1]"), "not a JSON object"),
    "twice": (file_of(b'{"a": {}, "a": {}}'), "twice"),
    "no place": (file_of({"a": {"dtype": "F32", "shape": [1]}}), "no shape or no place"),
    "no row": (file_of({"a": 7}), "no shape or no place"),
    "negative": (file_of({"a": row([-4], 0, 16)}), "no shape or no place"),
    "not whole": (file_of({"a": row([1.5], 0, 6)}), "no shape or no place"),
    "wrong size": (file_of({"a": row([4], 0, 12)}), "takes 16 bytes"),
    "backwards": (file_of({"a": row([4], 16, 0)}), "from 16 to 0"),
    "past the end": (file_of({"a": row([20], 0, 80)}), "cut short"),
    "overlap": (file_of({"a": row([4], 0, 16), "b": row([4], 8, 24)}), "'a' and 'b' overlap"),
}


@pytest.mark.parametrize(("content", "what"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_file_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointCorrupt, match=what) as caught:
        read_safetensors(path)
    assert str(path) in caught.value.message


def test_an_unsupported_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of({"a": row([4], 0, 4, "F8_E4M3")}))
    with pytest.raises(UnsupportedCheckpoint, match=r"'a' is stored as F8_E4M3.*F32, F16, BF16"):
        read_safetensors(path)


@pytest.mark.parametrize("dtype", [["F32"], {}, 5, None])
def test_a_type_that_is_no_name_is_refused(tmp_path: Path, dtype: Any) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_of({"a": {**row([4], 0, 16), "dtype": dtype}}))
    with pytest.raises(UnsupportedCheckpoint, match=r"'a' is stored as .*supported are F32"):
        read_safetensors(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"absent\.safetensors"):
        read_safetensors(tmp_path / "absent.safetensors")


def test_mutants_are_read_or_raise_typed_errors(tmp_path: Path) -> None:
    path = tmp_path / "mutant.safetensors"
    tensors = {f"layer.{i}.weight": torch.from_numpy(np.ones((4, i + 1))).float() for i in range(6)}
    save_file(tensors, path)
    sound = path.read_bytes()
    header = 8 + int.from_bytes(sound[:8], "little")
    chance = random.Random(11)
    outcomes = set()
    for index in range(NUM_MUTANTS):
        mutant = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(header)
            mutant[at] = (
                chance.choice(b'0123456789"[]{},:-') if index % 2 else chance.randrange(256)
            )
        if index % 5 == 0:
            del mutant[chance.randrange(len(mutant)) :]
        path.unlink()  # written over, it would wait for the disk
        path.write_bytes(mutant)
        try:
            read_safetensors(path)
            outcomes.add("read")
        except CheckpointError as error:
            outcomes.add(error.code)
    assert outcomes == {"read", "checkpoint_corrupt", "unsupported_checkpoint"}
