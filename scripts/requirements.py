# SPDX-License-Identifier: Apache-2.0
"""Print the requirements of the named sets in pyproject.toml, one shell word each.

Sets: `runtime` (project.dependencies), `build` (what an editable build needs), or an extra's name.
"""

import shlex
import sys
import tomllib
from pathlib import Path

# CMake and Ninja come from pip, so that a machine without them can build.
_BUILD_TOOLS = ["cmake>=3.25,<4", "ninja>=1.11"]


def requirements(name: str) -> list[str]:
    """The requirement strings of one set."""
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    if name == "runtime":
        return list(project["project"]["dependencies"])
    if name == "build":
        return [*project["build-system"]["requires"], *_BUILD_TOOLS]
    return list(project["project"]["optional-dependencies"][name])


if __name__ == "__main__":
    words = [word for name in sys.argv[1:] for word in requirements(name)]
    # The Makefile splits at blanks: requirement strings here hold none.
    assert all(shlex.split(word) for word in words)
    sys.stdout.write(" ".join(word.replace(" ", "") for word in words))
