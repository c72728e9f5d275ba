# SPDX-License-Identifier: Apache-2.0
"""Weight memory: aligned, never shared, as long-lived as the tensors in it."""

import gc
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tokenlight.kernels.weight_memory import (
    ALIGNMENT_BYTES,
    CHUNK_BYTES,
    LARGE_PAGE_BYTES,
    WeightMemory,
)


@pytest.mark.parametrize("num_bytes", [0, 1, 63, 4096, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_tensors_are_zero_and_aligned(num_bytes: int) -> None:
    memory = WeightMemory()
    for _ in range(3):
        tensor = memory.allocate(num_bytes)
        assert (tensor.numel(), tensor.dtype) == (num_bytes, torch.uint8)
        assert tensor.data_ptr() % ALIGNMENT_BYTES == 0
        assert not tensor.any()
        tensor.fill_(255)


def test_threads_get_tensors_that_do_not_overlap() -> None:
    memory = WeightMemory()
    with ThreadPoolExecutor(4) as pool:
        tensors = list(pool.map(memory.allocate, [1000 + i for i in range(200)]))
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.numel()) for t in tensors)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def test_a_copy_has_the_numbers_and_memory_of_its_own() -> None:
    numbers = torch.randn(5, 7)
    copy = WeightMemory().copy(numbers)
    assert torch.equal(copy, numbers)
    assert copy.data_ptr() != numbers.data_ptr()
    assert copy.is_contiguous()


def test_memory_that_was_first_given_in_inference_mode_is_written_outside() -> None:
    memory = WeightMemory()
    with torch.inference_mode():
        memory.allocate(16)
    later = memory.allocate(16)
    torch.cat([torch.ones(8, dtype=torch.uint8)] * 2, out=later)
    assert later.tolist() == [1] * 16


def test_a_chunk_goes_with_its_last_tensor() -> None:
    memory = WeightMemory()
    kept = memory.allocate(10)
    chunk = weakref.ref(kept.untyped_storage())
    memory.allocate(2 * CHUNK_BYTES)  # the next chunk
    gc.collect()
    before_kb = mapped_kb()
    del kept
    gc.collect()
    assert chunk() is None
    assert before_kb - mapped_kb() >= (CHUNK_BYTES - LARGE_PAGE_BYTES) // 1024


def mapped_kb() -> int:
    """Address space of this process, in KB."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4
