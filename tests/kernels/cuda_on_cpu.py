# SPDX-License-Identifier: Apache-2.0
"""Kernels of a CUDA source on the CPU: the source's own text, compiled with `cuda_on_cpu.h`."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
COMPILER = shutil.which("c++")
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char dynamic\[\];")
READ = re.compile(r"\*\(const (uint[24])\*\)\((data|shared) \+")
KEEP = """
extern "C" void keep_low_halves(bool keeps) { keeps_low_halves = keeps; }
"""
LAUNCH = """
extern "C" void launch_{name}(const {params}* params, int grid, int threads, int shared_bytes,
                              int cluster) {{
    static {params} given;
    given = *params;
    on_cpu::body = [] {{ {name}(given); }};
    on_cpu::grid = {{grid, 1}};
    on_cpu::num_threads = threads;
    for (int first = 0; first < grid; first += cluster) {{
        on_cpu::Cluster of;
        of.blocks.resize(cluster);
        for (int i = 0; i < cluster; ++i) {{
            on_cpu::Block& block = of.blocks[i];
            block.at.x = first + i;
            block.rank = i;
            block.memory.assign(shared_bytes, 0xff);
            block.warps.resize(threads / 32);
            block.num_running = threads;
        }}
        on_cpu::Run(of);
    }}
}}
"""


def text_of(source: Path, kernels: Sequence[str], params: str) -> tuple[str, int]:
    """C++ of a source whose other kernels are left out, and how many of its reads are counted."""
    parts = [*source.parent.glob("*.cuh"), source]
    text = "\n".join(re.sub(r'#include "\w+\.cuh"|#pragma once', "", p.read_text()) for p in parts)
    text = DYNAMIC.sub("unsigned char* dynamic = on_cpu::Memory();", text)
    text = re.sub(
        r"^[A-Z]+\((\w+), .*\)$",
        lambda found: found.group(0) if found.group(1) in kernels else "",
        text,
        flags=re.M,
    )
    text = text.replace("Pack(of_row.y", "PackResult(of_row.y")
    text, num_reads = READ.subn(r"on_cpu::Read<\1>(\2 +", text)
    launches = "".join(LAUNCH.format(name=name, params=params) for name in kernels)
    return f'#include "{HEADER}"\n{text}{KEEP}{launches}', num_reads


@dataclass
class KernelOnCpu:
    """Stands in for `cuda.Kernel`."""

    source: SourceOnCpu
    function: ctypes._CFuncPtr
    threads: int
    shared_bytes: int

    def launch(self, grid: tuple[int, int], params: ctypes.Structure) -> None:
        self.source.num_launches += 1
        self.function(
            ctypes.byref(params), grid[0], self.threads, self.shared_bytes, self.source.cluster
        )


class Workspaces:
    """Stands in for `cuda.workspace`: zeroed once; kernels leave it so where they count on it."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def __call__(self, name: str, num_bytes: int, device: torch.device) -> Tensor:
        if name not in self._kept or self._kept[name].numel() < num_bytes:
            self._kept[name] = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        return self._kept[name]


class SourceOnCpu:
    """Stands in for `cuda.Source`; compiled when it is made."""

    def __init__(
        self, source: Path, kernels: Sequence[str], params: str, folder: Path, *, cluster: int = 1
    ) -> None:
        file, library = folder / f"{source.stem}.cc", folder / f"{source.stem}.so"
        text, self.num_reads = text_of(source, kernels, params)
        file.write_text(text)
        assert COMPILER is not None
        flags = ("-std=c++17", "-O2", "-ffp-contract=off", "-w", "-shared", "-fPIC")
        subprocess.run([COMPILER, *flags, "-o", str(library), str(file)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.cluster = cluster
        self.num_launches = 0

    def keep_low_halves(self, keeps: bool) -> None:
        """Of float32 results, what rounding to bfloat16 drops: it tells orders of sums apart."""
        self.library.keep_low_halves(keeps)

    def most_at_a_bank(self) -> int:
        """Words of one bank of shared memory that lanes wanted at once, since the last question."""
        return self.library.most_at_a_bank()

    def largest_copy(self) -> int:
        """Bytes of the largest bulk copy to shared memory, since the last question."""
        return self.library.largest_copy_so_far()

    def kernel(self, name: str, *, threads: int, shared_bytes: int = 0) -> KernelOnCpu:
        function = getattr(self.library, f"launch_{name}")
        return KernelOnCpu(self, function, threads, shared_bytes)
