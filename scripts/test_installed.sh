#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build the sdist, and the wheel from it; install one of them; run the CPU suite against what was installed.
#
#   scripts/test_installed.sh PYTHON [wheel|sdist] [ARGUMENTS OF PYTEST...]
#
# The suite runs in the unpacked sdist, from which the package itself is taken away: what it imports is what a user
# has. PYTHON makes a clean environment; the python of a virtual environment is used as it is, and its tokenlight replaced.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$1 from=${2:-wheel}
shift $(($# < 2 ? $# : 2))
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if "$python" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'; then
  python=$(command -v "$python")
else
  "$python" -m venv "$scratch/venv"
  python=$scratch/venv/bin/python
fi
pip() { "$python" -m pip --disable-pip-version-check -q "$@"; }

echo "test-installed: $("$python" --version): building in isolation"
pip install 'build>=1.2'
"$python" -m build --outdir "$scratch/dist" "$root" >"$scratch/build.log" || { tail -50 "$scratch/build.log"; exit 1; }
case $from in
wheel) package=("$scratch"/dist/*.whl) ;;
sdist) package=("$scratch"/dist/*.tar.gz) ;;
*) echo "test-installed: install the wheel or the sdist, not '$from'" >&2 && exit 2 ;;
esac
echo "test-installed: installing ${package[0]##*/}"
pip uninstall -y tokenlight
pip install -c "$root/constraints.txt" "${package[0]}[test]"

mkdir "$scratch/suite"
tar -xzf "$scratch"/dist/*.tar.gz -C "$scratch/suite" --strip-components=1
rm -r "$scratch/suite/tokenlight"
cd "$scratch/suite"
"$python" -c 'import tokenlight, sys; sys.exit(not tokenlight.__file__.startswith(sys.prefix))'
"$python" -m pytest -q -m "not slow and not cuda and not multi_gpu" "$@"
