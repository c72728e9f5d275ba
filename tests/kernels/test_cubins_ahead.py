# SPDX-License-Identifier: Apache-2.0
"""Cubins are found in threads of their own, once, and a fault waits for whoever asks."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tokenlight.kernels.cuda.ahead import Cubins
from tokenlight.kernels.cuda.compile import CompileFailed

ARCH = "sm_90a"
SOURCES = [Path(f"/ops/{name}/cuda.cu") for name in ("linear", "sample", "attention")]


class Compiler:
    """A find that ends only when all sources are at it: alone in turn, it would never."""

    def __init__(self, num_together: int) -> None:
        self.barrier = threading.Barrier(num_together, timeout=60)
        self.asked: list[Path] = []

    def __call__(self, source: Path, arch: str) -> bytes:
        self.asked.append(source)
        self.barrier.wait()
        return f"{source.parent.name} for {arch}".encode()


def test_sources_are_compiled_beside_each_other() -> None:
    compiler = Compiler(len(SOURCES))
    cubins = Cubins(compiler)
    cubins.begin(SOURCES, ARCH)
    assert [cubins.get(s, ARCH) for s in SOURCES] == [
        b"linear for sm_90a", b"sample for sm_90a", b"attention for sm_90a",
    ]  # fmt: skip
    cubins.begin(SOURCES, ARCH)
    assert sorted(compiler.asked) == sorted(SOURCES)
    assert set(cubins.seconds) == {"linear", "sample", "attention"}
    assert cubins.waited_s > 0


def test_who_asks_before_it_is_there_waits_for_the_same() -> None:
    compiler = Compiler(2)
    cubins = Cubins(compiler)
    cubins.begin(SOURCES[:1], ARCH)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(cubins.get, SOURCES[0], ARCH) for _ in range(4)]
        assert not any(future.done() for future in asked)
        compiler.barrier.wait()
        assert {future.result() for future in asked} == {b"linear for sm_90a"}
    assert compiler.asked == SOURCES[:1]


def test_what_was_not_begun_is_compiled_when_it_is_asked_for() -> None:
    cubins = Cubins(Compiler(1))
    assert cubins.get(SOURCES[1], "sm_100") == b"sample for sm_100"
    assert cubins.get(SOURCES[1], ARCH) == b"sample for sm_90a"


def test_a_refused_source_is_told_to_each_who_asks_for_it() -> None:
    def find(source: Path, arch: str) -> bytes:
        if source is SOURCES[0]:
            raise CompileFailed("expected a semicolon")
        return b"fine"

    cubins = Cubins(find)
    cubins.begin(SOURCES, ARCH)
    for _ in range(2):
        with pytest.raises(CompileFailed, match="semicolon"):
            cubins.get(SOURCES[0], ARCH)
    assert cubins.get(SOURCES[1], ARCH) == b"fine"
