# SPDX-License-Identifier: Apache-2.0
"""The CUDA sources compile, fit their multiprocessor, and are kept under the name of their text."""

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tokenlight.base.env import child_environ
from tokenlight.kernels.cuda import compile as compiling
from tokenlight.kernels.cuda.compile import ARCH, CompileFailed, cubin_name, find_cubin, sources
from tokenlight.kernels.ops.linear import cuda as linear
from tokenlight.kernels.ops.paged_attention import SHORT_TOKENS, cuda_short, decode
from tokenlight.kernels.ops.paged_attention import cuda as paged_attention
from tokenlight.kernels.ops.sample import cuda as sample

SHARED_BYTES = 228 << 10
"""Of a multiprocessor; each block takes one KiB more than it asks for."""

# Kernel -> bytes that may spill: 32 rows of heads of 128 need more registers than there are; the
# others spill once, before their loop.
SPILLS = {"attend_128_32": 48, "attend_short_128_32": 100, "linear_16": 24, "rope_write_kv": 8}

DECODE = Path(decode.__file__).with_suffix(".cuh")
SOURCE = 'extern "C" __global__ void nothing() {}\n'


def each_source() -> list:
    return [pytest.param(source, id=source.parent.name) for source in sources()]


def spills(log: str) -> dict[str, int]:
    """Kernel -> bytes spilled, of the assembler's report."""
    blocks = re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+)", log, re.S)
    return {name: int(stores) + int(loads) for name, stores, loads in blocks}


def test_every_op_with_a_cuda_module_has_a_source() -> None:
    assert {s.parent.name for s in sources()} == {
        "linear", "paged_attention", "rope_write_kv", "sample",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: CUDA sources not compiled")
@pytest.mark.parametrize("source", each_source())
def test_nvcc_compiles_without_spills(source: Path, tmp_path: Path) -> None:
    found = spills(compiling.compile_nvcc(source, ARCH, tmp_path / "cubin"))
    declared = set(re.findall(r"^[A-Z]+\((\w+), ", source.read_text(), re.M)) or {
        source.parent.name
    }
    assert set(found) == declared
    assert {name: n for name, n in found.items() if n > SPILLS.get(name, 0)} == {}
    assert (tmp_path / "cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: CUDA sources not compiled")
def test_a_wheel_can_carry_cubins(tmp_path: Path) -> None:
    """As CMake runs it: by path, before the package is built."""
    environ = child_environ(PYTHONPATH=str(Path(__file__).parents[2]))
    subprocess.run([sys.executable, compiling.__file__, str(tmp_path)], check=True, env=environ)
    assert {p.name for p in tmp_path.iterdir()} == {cubin_name(s, ARCH) for s in sources()}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc: CUDA sources not compiled")
def test_nvcc_tells_what_it_refuses(tmp_path: Path) -> None:
    source = tmp_path / "cuda.cu"
    source.write_text("int wrong")
    with pytest.raises(CompileFailed, match="expected a"):
        compiling.compile_nvcc(source, ARCH, tmp_path / "cubin")


def has_nvrtc() -> bool:
    if importlib.util.find_spec("cuda") is None:
        return False
    return importlib.util.find_spec("cuda.bindings") is not None


@pytest.mark.skipif(not has_nvrtc(), reason="no cuda-bindings: NVRTC not tried")
@pytest.mark.parametrize("source", each_source())
def test_nvrtc_compiles(source: Path) -> None:
    assert compiling.compile_nvrtc(source, ARCH)[:4] == b"\x7fELF"


def test_a_cubin_is_named_for_its_text_and_target(tmp_path: Path) -> None:
    source = tmp_path / "op" / "cuda.cu"
    source.parent.mkdir()
    source.write_text(SOURCE)
    name = cubin_name(source, "sm_90a")
    assert re.fullmatch(r"op-[0-9a-f]{16}\.sm_90a\.cubin", name)
    assert cubin_name(source, "sm_100") != name
    source.write_text(SOURCE + " ")
    assert cubin_name(source, "sm_90a") != name
    source.write_text(SOURCE)
    assert cubin_name(source, "sm_90a") == name
    (source.parent / "beside.cuh").write_text("// what the source may include")
    assert cubin_name(source, "sm_90a") != name


def test_a_cubin_is_compiled_once_and_then_found(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "op" / "cuda.cu"
    source.parent.mkdir()
    source.write_text(SOURCE)
    monkeypatch.setenv("TOKENLIGHT_CACHE", str(tmp_path / "cache"))
    calls, versions = [], ["nvrtc-13.0"]
    monkeypatch.setattr(compiling, "compile_nvrtc", lambda *args: calls.append(args) or b"cubin")
    monkeypatch.setattr(compiling, "nvrtc_version", lambda: versions[-1])
    assert find_cubin(source, ARCH) == find_cubin(source, ARCH) == b"cubin"
    assert calls == [(source, ARCH)]
    kept = tmp_path / "cache" / "cubins" / "nvrtc-13.0"
    assert [p.name for p in kept.iterdir()] == [cubin_name(source, ARCH)]
    versions.append("nvrtc-13.1")
    find_cubin(source, ARCH)
    assert len(calls) == 2
    source.write_text(SOURCE + " ")
    find_cubin(source, ARCH)
    assert len(calls) == 3


def test_a_packaged_cubin_needs_no_compiler(tmp_path: Path, monkeypatch) -> None:
    source = tmp_path / "op" / "cuda.cu"
    source.parent.mkdir()
    source.write_text(SOURCE)
    monkeypatch.setattr(compiling, "PACKAGED", tmp_path)
    (tmp_path / cubin_name(source, ARCH)).write_bytes(b"packaged")
    assert find_cubin(source, ARCH) == b"packaged"


def test_blocks_fit_their_multiprocessor() -> None:
    for head_dim, rows in product((64, 128), (8, 16, 32)):
        shared = paged_attention._shared_bytes(head_dim, rows, rows)
        assert shared + 1024 <= SHARED_BYTES
        blocks = 3 if head_dim * rows <= 1024 else 2  # as its registers are bound
        declared = f"ATTEND(attend_short_{head_dim}_{rows}, {head_dim}, {rows // 8}, {blocks})"
        assert declared in cuda_short._SOURCE.path.read_text()
        assert blocks * (cuda_short._shared_bytes(head_dim, rows) + 1024) <= SHARED_BYTES
    for name, plan in linear._PLANS.items():
        blocks = 2 if name == "linear" else 3
        assert blocks * (plan.shared_bytes + 1024 + 640) <= SHARED_BYTES
        declared = f"LINEAR({name}_8, 1, {1 + name.endswith('mul')}, {plan.chunks}, {plan.stages}, "
        assert declared in linear._SOURCE.path.read_text()
    assert sample._STATE_BYTES + sample.MAX_VOCABULARY // 2 <= SHARED_BYTES - 1024
    state = re.search(r"kStateBytes = (\d+);", sample._SOURCE.path.read_text())
    assert int(state.group(1)) == sample._STATE_BYTES
    assert sample.MAX_VOCABULARY >= 262_144


def test_the_attention_is_launched_as_its_source_says() -> None:
    text = DECODE.read_text() + paged_attention._SOURCE.path.read_text()
    said = {name: int(n) for name, n in re.findall(r"constexpr int (k\w+) = (\d+);", text)}
    assert said["kStages"] == paged_attention._STAGES
    assert said["kStageTokens"] == decode.STAGE_TOKENS
    assert said["kShort"] == SHORT_TOKENS
    assert said["kShortChunks"] == decode.SHORT_CHUNKS
    assert said["kMaxRequests"] == paged_attention._MAX_REQUESTS
    assert said["kMostChunks"] == 1 << paged_attention._MAX_CHUNKS_SHIFT
    assert said["kTeam"] == decode.TEAM_WARPS
    mergers = re.search(r"kMergers = kRowTiles == 4 \? (\d+) : (\d+);", text)
    assert mergers is not None
    others = 32 * (decode.TEAM_WARPS + 1)
    assert [others + int(n) for n in mergers.groups()] == [
        paged_attention._THREADS[rows] for rows in (32, 8)
    ]
    assert paged_attention._THREADS[16] == paged_attention._THREADS[8]
    assert f"sizeof(Shared) == {paged_attention._STATE_BYTES}" in text


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 8, 32, 200])
def test_a_long_cache_has_a_chunk_for_each_block_of_the_device(kv_heads: int) -> None:
    chunks = 1 << paged_attention.chunks_shift(132, kv_heads)
    assert chunks == 1 or chunks * kv_heads <= 132 < 2 * chunks * kv_heads or chunks == 128


def test_params_are_laid_out_as_the_kernels_read_them() -> None:
    """A struct's pointers first, then 4-byte numbers: the same in C and in ctypes."""
    for ours, struct, text in (
        (linear._Params, "LinearParams", linear._SOURCE.path),
        (decode.Params, "AttentionParams", DECODE),
        (sample._Params, "SampleParams", sample._SOURCE.path),
    ):
        body = re.search(rf"struct {struct} {{(.*?)\n}};", text.read_text(), re.S).group(1)
        declared = []
        for line in re.sub(r"//[^\n]*", "", body).split(";"):
            kind, _, names = line.strip().rpartition(" ") if "," not in line else (
                line.strip().split(" ", 1)[0], "", line.strip().split(" ", 1)[1],
            )  # fmt: skip
            for name in filter(None, (n.strip() for n in names.split(","))):
                declared.append((name.lstrip("*"), "*" in kind + name))
        assert [(name, kind is ctypes.c_void_p) for name, kind in ours._fields_] == declared
