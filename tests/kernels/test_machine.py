# SPDX-License-Identifier: Apache-2.0
"""What a processor can do, by the names that implementations ask for."""

from pathlib import Path

import pytest
import torch

from tokenlight.kernels import _cpu, machine


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("flags\t\t: fpu sse4_2 avx avx2 fma", {"avx2"}),
        (
            "flags : avx2 avx512f avx512bw avx512_vnni avx512_bf16 amx_tile amx_int8",
            {"avx2", "avx512", "vnni", "bf16", "amx"},
        ),
        ("flags : avx2 avx_vnni", {"avx2", "vnni"}),
        ("Features\t: fp asimd asimddp i8mm bf16", {"neon", "dotprod", "i8mm", "bf16"}),
        ("Hardware : something else", set()),
        ("", set()),
    ],
)
def test_extensions_are_those_that_the_system_lists(listed, found, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\n{listed}\n")
    assert machine.read_cpu_extensions(cpuinfo) == found


def test_a_system_without_a_list_has_what_the_kernels_found(tmp_path: Path) -> None:
    assert machine.read_cpu_extensions(tmp_path / "none") == frozenset()
    assert machine.features("cpu") >= set(_cpu.features())


@pytest.mark.parametrize(
    ("capability", "found"),
    [
        ((7, 5), set()),
        ((8, 0), {"sm80"}),
        ((8, 6), {"sm80", "sm86"}),
        ((9, 0), {"sm80", "sm86", "sm89", "sm90"}),
        ((12, 0), {"sm80", "sm86", "sm89", "sm90", "sm100", "sm120"}),
    ],
)
def test_a_gpu_has_what_those_before_it_had(capability, found, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert machine.features.__wrapped__("cuda") == found
