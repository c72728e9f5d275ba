# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ text to a cubin: found in the package, in the user's cache, or compiled by NVRTC.

NVRTC comes with every CUDA build of torch, so no machine needs nvcc. What it makes is kept under
its version's name, so another NVRTC's is not used. A wheel that is built where
nvcc is may carry cubins: this file, run as a program, writes them to a directory (CMake's option
TOKENLIGHT_CUBINS does). They are found by the same name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenlight.base.env import read_env

ARCH = "sm_90a"
"""What packaged cubins are for."""

PRELUDE = Path(__file__).with_name("prelude.cuh")
PACKAGED = Path(__file__).with_name("cubins")


class CompileFailed(Exception):
    """A compiler refused a source; the message is its log."""


def source_name(source: Path) -> str:
    """The op's name, and what of it: linear for linear/cuda.cu, x_prefill for x/cuda_prefill.cu."""
    return source.parent.name + source.stem.removeprefix("cuda")


def headers(source: Path) -> list[Path]:
    """What a source may include: the prelude, and what lies beside it."""
    return [PRELUDE, *sorted(source.parent.glob("*.cuh"))]


def cubin_name(source: Path, arch: str) -> str:
    """A file name that says what was compiled: another source or header has another name."""
    texts = b"\0".join(path.read_bytes() for path in (*headers(source), source))
    digest = hashlib.sha256(texts).hexdigest()[:16]
    return f"{source_name(source)}-{digest}.{arch}.cubin"


def find_cubin(source: Path, arch: str) -> bytes:
    """The cubin of a source; compiled, and kept for the next process, if it is nowhere.

    Raises:
        CompileFailed: NVRTC refused the source.
    """
    name = cubin_name(source, arch)
    if (packaged := PACKAGED / name).exists():
        return packaged.read_bytes()
    kept = read_env().cache_dir / "cubins" / nvrtc_version() / name
    if kept.exists():
        return kept.read_bytes()
    cubin = compile_nvrtc(source, arch)
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Two processes may both get here: each renames a whole file into place.
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
        file.write(cubin)
    os.replace(file.name, kept)
    return cubin


def nvrtc_version() -> str:
    """Of the library that would compile here."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return f"nvrtc-{major}.{minor}"


def compile_nvrtc(source: Path, arch: str) -> bytes:
    """Compile in this process.

    Raises:
        CompileFailed: the source is refused.
    """
    from cuda.bindings import nvrtc

    included = headers(source)
    status, program = nvrtc.nvrtcCreateProgram(
        source.read_bytes(),
        source.name.encode(),
        len(included),
        [header.read_bytes() for header in included],
        [header.name.encode() for header in included],
    )
    options = [b"--std=c++17", f"--gpu-architecture={arch}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CompileFailed(f"NVRTC refused {source}:\n{log.decode(errors='replace')}")
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin: bytes = b" " * int(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


def compile_nvcc(source: Path, arch: str, cubin: Path) -> str:
    """Compile with the nvcc of the PATH; what the assembler tells of each kernel.

    Raises:
        CompileFailed: the source is refused.
    """
    target = f"arch={arch.replace('sm', 'compute')},code={arch}"
    done = subprocess.run(
        [
            *("nvcc", "-std=c++17", "-gencode", target, "-cubin", "-Xptxas", "-v"),
            *("-I", str(PRELUDE.parent), "-o", str(cubin), str(source)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CompileFailed(f"nvcc refused {source}:\n{done.stderr}")
    return done.stderr


def sources() -> list[Path]:
    """Every CUDA source of the package."""
    return sorted((PRELUDE.parent.parent / "ops").glob("*/cuda*.cu"))


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in sources():
        compile_nvcc(each, ARCH, Path(sys.argv[1]) / cubin_name(each, ARCH))
