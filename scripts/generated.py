# SPDX-License-Identifier: Apache-2.0
"""Write the files that are generated from code, or with `--check` fail when one is stale."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def _stub(module: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stub.pyi"
        command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", module, "-o", str(out)]
        subprocess.run(command, check=True, cwd=ROOT)
        return out.read_text()


def _print_of(module: str) -> str:
    command = [sys.executable, "-m", module]
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout


# file -> how its text is made
GENERATED: dict[str, Callable[[], str]] = {
    "tokenlight/control/_control.pyi": lambda: _stub("tokenlight.control._control"),
    "tokenlight/kernels/_cpu.pyi": lambda: _stub("tokenlight.kernels._cpu"),
    "docs/config.md": lambda: _print_of("tokenlight.config.docs"),
    "docs/models.md": lambda: _print_of("scripts.models_page"),
}


def main() -> int:
    """Write or check all of them."""
    is_check = "--check" in sys.argv
    stale = []
    for name, make in GENERATED.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not is_check:
            path.write_text(text)
            print(f"wrote {name}")
    if is_check:
        for name in stale:
            print(f"stale: {name}; run `make docs` and commit it")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
