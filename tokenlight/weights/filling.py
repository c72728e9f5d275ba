# SPDX-License-Identifier: Apache-2.0
"""Slots being filled: matrices are packed behind the caller's back, their pages kept meanwhile."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tokenlight.checkpoint import TensorEntry
from tokenlight.kernels import PackQueue
from tokenlight.weights.mapped import MappedFiles
from tokenlight.weights.slot import Slot, Target
from tokenlight.weights.stored import StoredTensor

# Bytes of parts that may wait; giving pages back one tensor at a time interrupts every thread.
MAX_WAITING_BYTES = 256 << 20


class Filling:
    """Fills slots; on leaving it all of them have their numbers, however it is left."""

    def __init__(self, files: MappedFiles, target: Target) -> None:
        self._files = files
        is_cpu = target.device.type == "cpu"
        self._queue = PackQueue() if is_cpu else None
        self._target = target._replace(pack_queue=self._queue)
        self._waiting: list[TensorEntry] = []
        self._waiting_bytes = 0

    def fill(
        self, slot: Slot, parts: Sequence[StoredTensor], entries: Sequence[TensorEntry]
    ) -> None:
        """Give the slot its parts, which were read from `entries`."""
        self._waiting.extend(entries)
        self._waiting_bytes += sum(part.rows.nbytes for part in parts)
        slot.fill(parts, self._target)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._settle()

    def _settle(self) -> None:
        if self._queue is not None:
            self._queue.finish()
        for entry in self._waiting:
            self._files.release(entry)
        self._waiting.clear()
        self._waiting_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The rest of the pages go with the map.
        if self._queue is not None:
            self._queue.finish()
