#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build csrc/tests with the address and undefined-behaviour sanitizers, and run them.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
"$bin/cmake" -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DTOKENLIGHT_TESTS=ON -DTOKENLIGHT_PYTHON=OFF -DTOKENLIGHT_SANITIZE=address,undefined >/dev/null
"$bin/cmake" --build build/sanitize
"$bin/ctest" --test-dir build/sanitize --output-on-failure --no-tests=error
