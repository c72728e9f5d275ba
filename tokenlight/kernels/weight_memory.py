# SPDX-License-Identifier: Apache-2.0
"""Memory for weights on the CPU, in large pages, of which the KV cache is made as well.

A step reads all weights once. In pages of 4 KB each page costs a fault when it is first written and
a walk of the page table whenever it is read.
"""

import contextlib
import mmap
import threading

import torch
from torch import Tensor

LARGE_PAGE_BYTES = 2 << 20
CHUNK_BYTES = 64 << 20
ALIGNMENT_BYTES = 64


class WeightMemory:
    """Hands out tensors from chunks of large pages, one after another.

    A chunk lives as long as a tensor in it. Thread rules: any thread may call `allocate`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used_bytes = 0

    def allocate(self, num_bytes: int) -> Tensor:
        """Zeros, uint8 [num_bytes], at an address that registers are loaded from at once."""
        with self._lock:
            start = -(-self._used_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            if start + num_bytes > len(self._chunk):
                self._chunk, start = map_large_pages(max(num_bytes, CHUNK_BYTES)), 0
            self._used_bytes = start + num_bytes
            return self._chunk[start : start + num_bytes]

    def copy(self, tensor: Tensor) -> Tensor:
        """The same numbers in weight memory; a tensor without numbers is given back."""
        if tensor.is_meta:
            return tensor
        memory = self.allocate(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
        return memory.copy_(tensor)


@torch.inference_mode(mode=False)  # a chunk is shared by who is inside that mode and who is not
def map_large_pages(num_bytes: int) -> Tensor:
    """Anonymous memory that begins and ends with a large page; pages come when they are touched."""
    num_bytes = -(-num_bytes // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    view = mmap.mmap(-1, num_bytes + LARGE_PAGE_BYTES, flags=kind)
    with contextlib.suppress(AttributeError, OSError):  # a kernel without large pages
        view.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(view, dtype=torch.uint8)
    start = -whole.data_ptr() % LARGE_PAGE_BYTES
    return whole[start : start + num_bytes]


weight_memory = WeightMemory()
