# SPDX-License-Identifier: Apache-2.0
"""The GGUF header reader agrees with the gguf package, and names what is wrong with a file."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.checkpoint.bytes_of_gguf import Gguf, array, number, tensor, text, value
from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint.gguf.header import read_header
from tokenlight.checkpoint.metadata import Array


def write(path: Path, content: Gguf | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.to_bytes())
    return path


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", "q4_0", "q4_1", "q8_0"])
def test_agrees_with_the_gguf_package(tmp_path: Path, format: str) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", format=format)
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    assert set(ours.tensors) == {each.name for each in theirs.tensors}
    for each in theirs.tensors:
        entry = ours.tensors[each.name]
        assert entry.shape == tuple(reversed([int(n) for n in each.shape]))
        assert entry.format == each.tensor_type.name.lower()
        assert (entry.offset_bytes, entry.num_bytes) == (each.data_offset, each.n_bytes)
    known = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert set(ours.metadata) == set(known)
    for key, field in known.items():
        found = ours.metadata[key]
        if isinstance(found, Array):
            found = found.strings() if found.code == "string" else found.numbers()
        assert found == field.contents(), key


def test_every_value_type_is_read(tmp_path: Path) -> None:
    numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    sample = Gguf()
    for type_id, code in numbers.items():
        sample.values.append(value(f"one.{type_id}", type_id, struct.pack(f"<{code}", 7)))
        sample.values.append(
            array(f"many.{type_id}", type_id, 3, struct.pack(f"<3{code}", 1, 2, 3))
        )
    sample.values.append(value("yes", 7, b"\x01"))
    metadata = read_header(write(tmp_path / "a.gguf", sample)).metadata
    for type_id in numbers:
        assert metadata[f"one.{type_id}"] == 7
        assert metadata.find_numbers(f"many.{type_id}") == [1, 2, 3]
    assert metadata.find_bool("yes") is True


def changed(**fields: object) -> Gguf:
    return Gguf(**fields)


def with_values(*extra: bytes) -> Gguf:
    sample = Gguf()
    sample.values += extra
    return sample


CORRUPT: dict[str, tuple[Gguf | bytes, str]] = {
    "empty": (b"", "empty"),
    "magic": (changed(magic=b"GGML"), "not a GGUF file"),
    "version": (changed(version=struct.pack("<I", 77)), "version 77 does not exist"),
    "too many tensors": (changed(num_tensors=1 << 60), "claims 1152921504606846976 tensors"),
    "too many values": (changed(num_values=1 << 60), "claims 1152921504606846976 values"),
    "one value too many": (changed(num_values=10), "the key of value 9 claims"),
    "huge string": (with_values(value("s", 8, struct.pack("<Q", 1 << 62))), "claims"),
    "string past the end": (with_values(value("s", 8, struct.pack("<Q", 9999))), "ends within"),
    "huge array": (with_values(array("a", 4, 1 << 61, b"")), "elements"),
    "array past the end": (with_values(array("a", 4, 9999, b"")), "ends within"),
    "strings past the end": (with_values(array("a", 8, 9999, b"")), "ends within"),
    "string of an array past the end": (
        with_values(array("a", 8, 1, struct.pack("<Q", 1 << 63))), "ends within",
    ),
    "array of arrays": (with_values(array("a", 9, 1, b"")), "array of the type 9"),
    "value type": (with_values(value("v", 13, b"")), "type 13"),
    "key is not UTF-8": (with_values(value(b"\xff", 4, bytes(4))), "not UTF-8"),
    "value is not UTF-8": (with_values(text("t", b"\xc3(")), "not UTF-8"),
    "key twice": (with_values(number("n", 1), number("n", 1)), "'n' is there twice"),
    "alignment": (with_values(number("general.alignment", 48)), "power of two"),
    "no dimensions": (changed(tensors=[tensor("t", ())]), "0 dimensions"),
    "five dimensions": (changed(tensors=[tensor("t", (1,) * 5)]), "5 dimensions"),
    "empty dimension": (changed(tensors=[tensor("t", (8, 0))]), "no dimension is 0"),
    "half a block": (changed(tensors=[tensor("t", (48, 2), type_id=3)]), "multiples of 32"),
    "tensor type": (changed(tensors=[tensor("t", (8,), type_id=999)]), "type 999"),
    "misaligned": (changed(tensors=[tensor("t", (8,), offset=8)]), "not a multiple of 32"),
    "past the end": (changed(tensors=[tensor("t", (8, 5))]), "cut short"),
    "far past the end": (changed(tensors=[tensor("t", (1 << 62, 1 << 62))]), "cut short"),
    "offset past the end": (changed(tensors=[tensor("t", (8,), offset=1 << 63)]), "cut short"),
    "overlap": (
        changed(tensors=[tensor("a", (16,)), tensor("b", (8,), offset=32)]), "'a' and 'b' overlap",
    ),
    "tensor twice": (
        changed(tensors=[tensor("a", (8,)), tensor("a", (8,), offset=32)]), "'a' is there twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "what"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_file_is_named(tmp_path: Path, content: Gguf | bytes, what: str) -> None:
    path = write(tmp_path / "broken.gguf", content)
    with pytest.raises(CheckpointCorrupt) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert what in caught.value.message


UNSUPPORTED: dict[str, tuple[Gguf, str]] = {
    "old version": (changed(version=struct.pack("<I", 1)), "version 1 is not supported"),
    "next version": (changed(version=struct.pack("<I", 4)), "version 4 is not supported"),
    "big-endian": (changed(version=struct.pack(">I", 3)), "big-endian"),
    "IQ2_XXS": (changed(tensors=[tensor("t", (256,), type_id=16)]), "supported are F32, F16"),
}


@pytest.mark.parametrize(("content", "what"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_unsupported_file_is_named(tmp_path: Path, content: Gguf, what: str) -> None:
    path = write(tmp_path / "other.gguf", content)
    with pytest.raises(UnsupportedCheckpoint, match=what) as caught:
        read_header(path)
    assert str(path) in caught.value.message


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"absent\.gguf: cannot be read"):
        read_header(tmp_path / "absent.gguf")


def test_tokens_that_are_not_utf8_are_refused_when_read(tmp_path: Path) -> None:
    payload = struct.pack("<Q", 1) + b"\xff"
    metadata = read_header(
        write(tmp_path / "a.gguf", with_values(array("tokens", 8, 1, payload)))
    ).metadata
    with pytest.raises(CheckpointCorrupt, match="'tokens' has a string that is not UTF-8"):
        metadata.find_strings("tokens")


def test_a_value_of_the_wrong_type_is_refused_when_read(tmp_path: Path) -> None:
    sample = with_values(text("t", "x"), value("b", 7, b"\x01"), array("a", 4, 0, b""))
    metadata = read_header(write(tmp_path / "a.gguf", sample)).metadata
    for look_up, key in [
        (metadata.find_int, "t"), (metadata.find_int, "b"), (metadata.find_float, "b"),
        (metadata.find_bool, "t"), (metadata.find_string, "a"), (metadata.find_strings, "a"),
        (metadata.find_numbers, "t"),
    ]:  # fmt: skip
        with pytest.raises(CheckpointCorrupt, match=f"'{key}' must be"):
            look_up(key)
    with pytest.raises(CheckpointCorrupt, match="'absent' is missing"):
        metadata.get_int("absent")


def test_the_tensor_bytes_are_where_the_entry_says(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    entry = read_header(path).tensors["output_norm.weight"]
    ours = np.fromfile(path, np.float32, count=entry.shape[0], offset=entry.offset_bytes)
    theirs = next(each for each in gguf.GGUFReader(path).tensors if each.name == entry.name)
    assert np.array_equal(ours, theirs.data)
