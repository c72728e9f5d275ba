# SPDX-License-Identifier: Apache-2.0
"""However a GGUF file is broken, opening it succeeds or raises a CheckpointError. Nothing else."""

import os
import random
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight.base.errors import CheckpointError
from tokenlight.checkpoint import open_checkpoint

NUM_MUTANTS = 4000
EDGE_NUMBERS = [(1 << bits) - 1 for bits in (0, 1, 7, 8, 16, 31, 32, 40, 63, 64)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "sound.gguf"
    return write_tiny_llama(path, vocab_size=272, hidden_size=32, layers=1).read_bytes()


def outcome(path: Path, content: bytes) -> str:
    """Open the file and read all that the header holds; which typed error came, or "opened"."""
    path.unlink(missing_ok=True)  # written over, it would wait for the disk
    path.write_bytes(content)
    try:
        checkpoint = open_checkpoint(path)
        metadata = checkpoint.tokenizer.gguf
        for key in ("tokens", "merges"):
            metadata.find_strings(f"tokenizer.ggml.{key}")
        metadata.find_numbers("tokenizer.ggml.token_type")
    except CheckpointError as error:
        return error.code if str(path) in error.message else f"the file is not named: {error}"
    return "opened"


def flip_bytes(content: bytearray, chance: random.Random, header: int) -> None:
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(header)] = chance.randrange(256)


def set_number(content: bytearray, chance: random.Random, header: int) -> None:
    width = chance.choice(("<I", "<Q"))
    at = chance.randrange(header - 8)
    struct.pack_into(
        width, content, at, chance.choice(EDGE_NUMBERS) % (1 << 8 * struct.calcsize(width))
    )


def cut_out(content: bytearray, chance: random.Random, header: int) -> None:
    start = chance.randrange(header)
    del content[start : start + chance.randint(1, 64)]


def double(content: bytearray, chance: random.Random, header: int) -> None:
    start = chance.randrange(header)
    content[start:start] = content[start : start + chance.randint(1, 64)]


MUTATIONS: list[Callable[[bytearray, random.Random, int], None]] = [
    flip_bytes, set_number, cut_out, double,
]  # fmt: skip


def mutants(sound: bytes, header: int) -> Iterator[bytes]:
    chance = random.Random(20240607)
    for index in range(NUM_MUTANTS):
        content = bytearray(sound)
        MUTATIONS[index % len(MUTATIONS)](content, chance, header)
        yield bytes(content)


def header_bytes(sound: bytes, path: Path) -> int:
    path.write_bytes(sound)
    return min(entry.offset_bytes for entry in open_checkpoint(path).tensors.values())


def test_mutated_headers_open_or_raise_typed_errors(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mutant.gguf"
    header = header_bytes(sound, path)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = [outcome(path, mutant) for mutant in mutants(sound, header)]
    assert set(outcomes) == {"opened", "checkpoint_corrupt", "unsupported_checkpoint"}
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < 100 << 10, "a claim of the header was believed and allocated"


def test_a_file_cut_anywhere_is_corrupt(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    header = header_bytes(sound, path)
    path.write_bytes(sound)
    lengths = [*range(0, header, 7), *range(header, len(sound), 997), header, len(sound) - 1]
    for length in sorted(lengths, reverse=True):
        os.truncate(path, length)
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert caught.value.code == "checkpoint_corrupt", length


def test_zeros_after_the_magic_are_corrupt(tmp_path: Path) -> None:
    for version in (2, 3):
        content = b"GGUF" + struct.pack("<I", version) + bytes(1 << 20)
        assert outcome(tmp_path / "zeros.gguf", content) == "checkpoint_corrupt"
