# SPDX-License-Identifier: Apache-2.0
"""Split GGUF files: any part opens the model, and a part that is missing or foreign is named."""

import shutil
from pathlib import Path

import gguf
import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound
from tokenlight.checkpoint import open_checkpoint

NUM_PARTS = 3


def part(directory: Path, number: int, count: int = NUM_PARTS) -> Path:
    return directory / f"tiny-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", tied=False)


@pytest.fixture
def directory(tmp_path: Path, whole: Path) -> Path:
    """The same model in three parts, as the gguf package splits: metadata in the first only."""
    directory = tmp_path / "parts"
    directory.mkdir()
    reader = gguf.GGUFReader(whole)
    chunk = -(-len(reader.tensors) // NUM_PARTS)
    for number in range(NUM_PARTS):
        writer = gguf.GGUFWriter(part(directory, number + 1), "llama")
        if number == 0:
            for field in reader.fields.values():
                if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                    kinds = field.types
                    inner = kinds[-1] if len(kinds) > 1 else None
                    writer.add_key_value(field.name, field.contents(), kinds[0], inner)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", NUM_PARTS)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number * chunk : (number + 1) * chunk]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return directory


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_opens_the_model(directory: Path, whole: Path, number: int) -> None:
    split, single = open_checkpoint(part(directory, number)), open_checkpoint(whole)
    assert split.name == "tiny"
    assert split.path == part(directory, 1)
    assert split.config == single.config
    assert split.chat_template == single.chat_template
    assert split.tensors.keys() == single.tensors.keys()
    for name, entry in split.tensors.items():
        other = single.tensors[name]
        assert (entry.shape, entry.format) == (other.shape, other.format)
        assert content(entry) == content(other)
    assert len({entry.path for entry in split.tensors.values()}) == NUM_PARTS
    assert split.num_bytes == sum(part(directory, n).stat().st_size for n in (1, 2, 3))


def content(entry: object) -> bytes:
    raw = entry.path.read_bytes()
    return raw[entry.offset_bytes : entry.offset_bytes + entry.num_bytes]


def test_a_missing_part_is_named(directory: Path) -> None:
    part(directory, 2).unlink()
    with pytest.raises(CheckpointNotFound, match=r"tiny-00002-of-00003\.gguf is missing"):
        open_checkpoint(part(directory, 1))


def test_a_part_in_anothers_place_is_named(directory: Path) -> None:
    shutil.copy(part(directory, 2), part(directory, 3))
    with pytest.raises(CheckpointCorrupt, match=r"00003-of-00003.gguf: says that it is part 1"):
        open_checkpoint(part(directory, 1))


def test_a_name_that_only_looks_split(tmp_path: Path, whole: Path) -> None:
    shutil.copy(whole, part(tmp_path, 1, 1))
    with pytest.raises(CheckpointCorrupt, match="says that it is part None"):
        open_checkpoint(part(tmp_path, 1, 1))
    with pytest.raises(CheckpointNotFound, match="there is no such file"):
        open_checkpoint(part(tmp_path, 1, 99999))
