# SPDX-License-Identifier: Apache-2.0
"""Lines per room, and what is over the budgets of CONTRIBUTING.md; `--check` fails on those."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOFT_FILE_LINES = 400
HARD_FILE_LINES = 600
FUNCTION_LINES = 50
ROOM_FILES = 12

# Over budget, by name, with the reason. Anything else over a hard budget fails `make check`.
_ONE_KERNEL = "a Triton kernel keeps its state in one function"
EXCEPTIONS: dict[str, str] = {
    "tokenlight/kernels/ops/mla_attention/triton.py": _ONE_KERNEL,
    "tokenlight/kernels/ops/paged_attention/triton.py": _ONE_KERNEL,
}


def function_lines(path: Path) -> list[tuple[str, int]]:
    """Name and length of each function in a Python file, docstrings left out."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            first = node.body[0]
            doc = ast.get_docstring(node)
            start = first.end_lineno if doc and first.end_lineno else node.lineno - 1
            found.append((node.name, node.end_lineno - start))
    return found


def over_budget(path: Path) -> list[str]:
    """What in one source file is over its budget."""
    name = str(path.relative_to(ROOT))
    if name in EXCEPTIONS:
        return []
    lines = len(path.read_text().splitlines())
    found = [f"{name}: {lines} lines (budget {HARD_FILE_LINES})"] if lines > HARD_FILE_LINES else []
    if path.suffix == ".py":
        found += [
            f"{name}:{function}: {length} lines (budget {FUNCTION_LINES})"
            for function, length in function_lines(path)
            if length > FUNCTION_LINES
        ]
    return found


def main() -> int:
    """Print the table; with --check, exit 1 when something is over a hard budget."""
    sources = sorted(
        [*ROOT.glob("tokenlight/**/*.py"), *ROOT.glob("csrc/**/*.cc"), *ROOT.glob("csrc/**/*.h")]
    )
    rooms: dict[str, list[int]] = {}
    for path in sources:
        room = "/".join(path.relative_to(ROOT).parts[:2])
        rooms.setdefault(room, []).append(len(path.read_text().splitlines()))
    problems = [line for path in sources for line in over_budget(path)]
    if "--check" not in sys.argv:
        for room, lines in sorted(rooms.items()):
            print(f"{room:28} {len(lines):4} files {sum(lines):7} lines, longest {max(lines)}")
        print(f"{'total':28} {len(sources):4} files {sum(map(sum, rooms.values())):7} lines")
    for line in problems:
        print(f"over budget: {line}")
    return 1 if problems and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
