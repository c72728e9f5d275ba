# SPDX-License-Identifier: Apache-2.0
"""Decode attention's ring of shared memory: how it is filled from blocks of a size, and read.

On the CPU from the kernel's own text (`cuda_on_cpu.py`); the equal bits on a device as well.
"""

import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.kernels.cuda_on_cpu import COMPILER, SourceOnCpu, Workspaces
from tests.kernels.test_cuda_short import exact, make_case, worst_error
from tokenlight.kernels.ops.paged_attention import cuda, cuda_short

on_cpu = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# Ends of chunks on each side of 16, 32 and 64 tokens; and windows that begin between them.
EDGES = tuple((1, tokens) for tokens in (1, 15, 17, 31, 33, 48, 49, 65, 97, 129, 145, 209, 801))
DRAFTS = ((6, 97), (3, 130), (1, 49), (8, 515))
OF_128, OF_64 = (8, 2, 128), (8, 2, 64)  # heads, kv heads and dimensions


class Ring:
    """The kernel on the CPU, whatever the table has room for."""

    num_multiprocessors = 132

    def __init__(self, source: SourceOnCpu) -> None:
        self.source = source
        self._workspaces = Workspaces()

    def attend(self, case) -> Tensor:
        q_THd, *rest = case.args
        with (
            patch.object(cuda, "_SOURCE", self.source),
            patch.object(cuda, "workspace", self._workspaces),
            patch.object(cuda, "num_multiprocessors", lambda: self.num_multiprocessors),
            patch.object(cuda_short, "serves", lambda batch: False),
        ):
            return cuda.attend(q_THd.bfloat16(), *rest, **case.kwargs)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Ring:
    names = ("128_8", "64_8", "64_32")
    return Ring(
        SourceOnCpu(
            cuda._SOURCE.path,
            [f"attend_{name}" for name in names],
            "AttentionParams",
            tmp_path_factory.mktemp("ring"),
        )
    )


def drafts(block_tokens: int, device: str = "cpu", **options):
    return make_case(DRAFTS, (*OF_64, block_tokens), device, **options)


def edges(block_tokens: int, device: str = "cpu", **options):
    return make_case(EDGES, (*OF_128, block_tokens), device, **options)


@on_cpu
@pytest.mark.slow
@pytest.mark.parametrize("make", [edges, drafts])
@pytest.mark.parametrize("window", [0, 50])
def test_blocks_of_any_size_give_the_same_bits(ring: Ring, make, window) -> None:
    case = make(16, window=window)
    want_THd = ring.attend(case)
    assert worst_error(want_THd, exact(case)) < 0.012
    ring.source.keep_low_halves(True)
    low_halves = [ring.attend(make(size, window=window)) for size in (16, 32, 64, 256)]
    ring.source.keep_low_halves(False)
    assert all(
        torch.equal(low_halves[0].view(torch.int16), o.view(torch.int16)) for o in low_halves
    )
    for size in (32, 64, 256):
        assert torch.equal(ring.attend(make(size, window=window)), want_THd)


@pytest.mark.cuda
@pytest.mark.parametrize("make", [edges, drafts])
@pytest.mark.parametrize("window", [0, 50])
def test_a_device_gives_blocks_of_any_size_the_same_bits(make, window) -> None:
    outs = []
    for size in (16, 32, 64, 256):
        q_THd, *rest = (case := make(size, "cuda", window=window)).args
        with patch.object(cuda_short, "serves", lambda batch: False):
            outs.append(cuda.attend(q_THd.bfloat16(), *rest, **case.kwargs))
    assert worst_error(outs[-1], exact(case)) < 0.012
    assert all(torch.equal(out, outs[0]) for out in outs)


@on_cpu
@pytest.mark.parametrize("block_tokens", [16, 32])
@pytest.mark.parametrize("make", [edges, drafts])
def test_two_lanes_at_most_meet_at_a_bank(ring: Ring, make, block_tokens) -> None:
    assert ring.source.num_reads == 3  # keys, values and queries
    ring.source.most_at_a_bank()
    ring.attend(make(block_tokens))
    assert ring.source.most_at_a_bank() == 2  # of values


@on_cpu
@pytest.mark.parametrize(("block_tokens", "copied"), [(16, 16), (32, 32), (64, 32), (256, 32)])
def test_a_copy_takes_half_a_stage_or_a_block(ring: Ring, block_tokens, copied) -> None:
    ring.source.largest_copy()
    ring.attend(edges(block_tokens))
    assert ring.source.largest_copy() == copied * 2 * 128


@on_cpu
@pytest.mark.slow
def test_the_count_of_banks_sees_that_lanes_meet(tmp_path: Path) -> None:
    shift = "64 * (token / kCopied)"
    text = cuda._SOURCE.path.read_text()
    assert text.count(shift) == 1
    (tmp_path / "cuda.cu").write_text(text.replace(shift, "0"))
    header = cuda._SOURCE.path.with_name("decode.cuh")
    (tmp_path / header.name).write_text(header.read_text())
    source = SourceOnCpu(tmp_path / "cuda.cu", ["attend_128_8"], "AttentionParams", tmp_path)
    Ring(source).attend(edges(64))
    assert source.most_at_a_bank() > 2


@on_cpu
@pytest.mark.parametrize("block_tokens", [16, 32])
def test_a_block_takes_chunk_after_chunk(ring: Ring, block_tokens) -> None:
    """Two blocks for all: each looks its next chunk up while it copies the one before."""
    lengths = ((1, 2100), (1, 60), (1, 2050), (1, 700), (1, 2303))
    case = make_case(lengths, (*OF_128, block_tokens), "cpu")
    with patch.object(Ring, "num_multiprocessors", 2):
        assert worst_error(ring.attend(case), exact(case)) < 0.012


@on_cpu
@pytest.mark.parametrize("heads", [(2, 1, 128), (3, 1, 64)])
def test_more_chunks_than_lanes_share_are_added(ring: Ring, heads) -> None:
    """47 chunks; 32 or 16 lanes have a row, and of three rows the last shares a warp with none."""
    case = make_case(((1, 12_000), (1, 200)), (*heads, 32), "cpu")
    assert worst_error(ring.attend(case), exact(case)) < 0.012


READING = """
struct Reading { int num; };
inline void read(const Reading& asked) {
    const unsigned char* shared = on_cpu::Memory();
    for (int i = 0; i < asked.num; ++i) *(const uint4*)(shared + 16 * threadIdx.x);
}
"""
LAUNCH = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.launch_read(ctypes.byref(ctypes.c_int(int(sys.argv[2]))), 1, 32, 512, 1)
print(library.most_at_a_bank())
"""


@on_cpu
@pytest.mark.slow
def test_the_count_of_banks_mixes_no_two_reads(tmp_path: Path) -> None:
    """Lanes take turns without meeting here: the first makes all of its reads ahead of the rest."""
    (tmp_path / "reading.cu").write_text(READING)
    assert SourceOnCpu(tmp_path / "reading.cu", ["read"], "Reading", tmp_path).num_reads == 1
    command = [sys.executable, "-c", LAUNCH, str(tmp_path / "reading.so")]
    counted, too_far = (
        subprocess.run([*command, str(num)], capture_output=True, text=True, check=False)
        for num in (64, 65)
    )
    assert (counted.returncode, counted.stdout) == (0, "1\n"), counted.stderr
    assert too_far.returncode == -signal.SIGABRT
    assert "a lane reads too far ahead" in too_far.stderr
