# SPDX-License-Identifier: Apache-2.0
"""Cubins before they are asked for: a thread for each source, while weights are read.

NVRTC compiles without holding the interpreter, so the sources take the time of the longest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from tokenlight.base.clock import now_s
from tokenlight.kernels.cuda.compile import find_cubin, source_name

Find = Callable[[Path, str], bytes]


class Cubins:
    """Each is found once in a process; whoever asks while a thread is at it waits for that."""

    def __init__(self, find: Find = find_cubin) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: dict[tuple[Path, str], Future[bytes]] = {}
        self.seconds: dict[str, float] = {}
        """By the source's name: how long a thread was at it."""
        self.waited_s = 0.0
        """Of those who asked, for cubins that were not there yet."""

    def begin(self, sources: Sequence[Path], arch: str) -> None:
        """Find these in threads of their own; what was begun before is not begun again."""
        for source in sources:
            future, is_new = self._future(source, arch)
            if is_new:
                # A daemon: a start that is refused meanwhile ends at once.
                threading.Thread(
                    target=self._run,
                    args=(source, arch, future),
                    name=f"cubin-{source_name(source)}",
                    daemon=True,
                ).start()

    def get(self, source: Path, arch: str) -> bytes:
        """A source's cubin.

        Raises:
            CompileFailed: it is refused; by a thread earlier, or now.
        """
        started_s = now_s()
        future, is_new = self._future(source, arch)
        if is_new:
            self._run(source, arch, future)
        cubin = future.result()
        with self._lock:
            self.waited_s += now_s() - started_s
        return cubin

    def _future(self, source: Path, arch: str) -> tuple[Future[bytes], bool]:
        with self._lock:
            is_new = (source, arch) not in self._found
            return self._found.setdefault((source, arch), Future()), is_new

    def _run(self, source: Path, arch: str, future: Future[bytes]) -> None:
        started_s = now_s()
        try:
            cubin = self._find(source, arch)
        except BaseException as fault:  # whoever asks is told
            future.set_exception(fault)
            return
        self.seconds[source_name(source)] = now_s() - started_s
        future.set_result(cubin)


CUBINS = Cubins()
"""This process's."""
