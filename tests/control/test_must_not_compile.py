# SPDX-License-Identifier: Apache-2.0
"""What must not compile does not, for the reason that is written beside it; its right twin does.

clang sees typestate (`-Wconsumed`); g++ is held to what it sees, and to being blind where said so.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CSRC = Path(__file__).parents[2] / "csrc"
SNIPPETS = sorted((CSRC / "tests" / "must_not_compile").glob("*.cc"))
FLAGS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-variable",
    f"-I{CSRC}",
]
ENVIRON = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
COMPILERS = {
    "clang": [shutil.which("clang++-14") or "clang++", "-Wconsumed"],
    "gcc": ["g++"],
}


@pytest.fixture(scope="session")
def headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Per compiler, flags that bring in the scheduler's header, compiled once."""
    folder = tmp_path_factory.mktemp("headers")
    flags = {}
    for compiler, command in COMPILERS.items():
        header = folder / f"{compiler}.h"
        header.write_text('#include "control/scheduler.h"\n')
        compiled = header.with_suffix(".h.pch" if compiler == "clang" else ".h.gch")
        make = [f for f in [*command, *FLAGS] if f != "-fsyntax-only"]
        subprocess.run([*make, "-x", "c++-header", str(header), "-o", str(compiled)], check=True)
        flags[compiler] = (
            ["-include-pch", str(compiled)] if compiler == "clang" else ["-include", str(header)]
        )
    return flags


def compile_(
    compiler: str, snippet: Path, flags: list[str], *, misuse: bool
) -> subprocess.CompletedProcess[str]:
    source = ("#define MISUSE\n" if misuse else "") + f'#include "{snippet}"\n'
    command = [*COMPILERS[compiler], *FLAGS, *flags, "-x", "c++", "-"]
    return subprocess.run(
        command, input=source, capture_output=True, text=True, check=False, env=ENVIRON
    )


def expected(compiler: str, snippet: Path) -> str:
    (line,) = re.findall(rf"^// {compiler}: (.*)$", snippet.read_text(), re.MULTILINE)
    return line


def test_there_are_enough():
    assert len(SNIPPETS) >= 30


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda path: path.stem)
def test_misuse_is_refused(snippet, compiler, headers):
    twin = compile_(compiler, snippet, headers[compiler], misuse=False)
    assert twin.returncode == 0, f"the right twin must compile:\n{twin.stderr}"
    wrong = compile_(compiler, snippet, headers[compiler], misuse=True)
    if expected(compiler, snippet) == "blind":
        assert wrong.returncode == 0, f"{compiler} sees more than we say: write it down"
        return
    assert wrong.returncode != 0, "the misuse compiles"
    errors = "\n".join(re.findall(r"(?:error|note): .*", wrong.stderr))
    assert re.search(expected(compiler, snippet), errors), errors
