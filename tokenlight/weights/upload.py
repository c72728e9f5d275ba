# SPDX-License-Identifier: Apache-2.0
"""Tensors from mapped files to a GPU: several threads read, pinned memory travels meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import Tensor

from tokenlight.weights.stored import StoredTensor

NUM_THREADS = 4
# Slots that are read before their turn.
NUM_AHEAD = 8
CHUNK_BYTES = 32 << 20

Read = Callable[[], list[StoredTensor]]


def read_ahead(reads: Iterable[Read], device: torch.device) -> Iterator[list[StoredTensor]]:
    """What each of `reads` gives, in their order; for a GPU, it is there already.

    On a CPU nothing is read ahead: what is read stays in its map.
    """
    if device.type != "cuda":
        yield from (read() for read in reads)
        return
    if device.index is None:  # the threads' own "cuda" is the first GPU, whichever is this rank's
        device = torch.device("cuda", torch.cuda.current_device())
    yield from uploaded(reads, lambda: Upload(device))


def uploaded(reads: Iterable[Read], make: Callable[[], Upload]) -> Iterator[list[StoredTensor]]:
    """Each thread makes its own upload."""
    local = threading.local()

    def run(read: Read) -> list[StoredTensor]:
        if not hasattr(local, "upload"):
            local.upload = make()
        upload: Upload = local.upload
        return [upload(stored) for stored in read()]

    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="weights") as threads:
        waiting: deque[Future[list[StoredTensor]]] = deque()
        for read in reads:
            waiting.append(threads.submit(run, read))
            if len(waiting) > NUM_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Upload:
    """Copies to a device through two pinned buffers: one is filled while the other travels."""

    def __init__(self, device: torch.device, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._device = device
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_cuda else None  # type: ignore[no-untyped-call]
        self._buffers = [
            torch.empty(chunk_bytes, dtype=torch.uint8, pin_memory=is_cuda) for _ in range(2)
        ]
        self._sent: list[torch.cuda.Event | None] = [None, None]

    def __call__(self, stored: StoredTensor) -> StoredTensor:
        """The same tensor in the device's memory."""
        rows = stored.rows.contiguous()
        there = torch.empty_like(rows, device=self._device)
        if self._stream is None:
            self._send(rows.view(-1), there.view(-1))
        else:
            # The memory may be that of a tensor that a kernel still reads.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                self._send(rows.view(-1), there.view(-1))
            self._stream.synchronize()
        return replace(stored, rows=there)

    def _send(self, here: Tensor, there: Tensor) -> None:
        chunk_bytes = len(self._buffers[0])
        for turn, start in enumerate(range(0, len(here), chunk_bytes)):
            which = turn % 2
            if (sent := self._sent[which]) is not None:
                sent.synchronize()
            part = here[start : start + chunk_bytes]
            buffer = self._buffers[which][: len(part)]
            buffer.copy_(part)
            there[start : start + chunk_bytes].copy_(buffer, non_blocking=True)
            if self._stream is not None:
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(self._stream)
                self._sent[which] = event
