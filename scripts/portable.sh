#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compile the C++ parts for aarch64, where only the portable kernels exist, and run their tests under emulation.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
compiler=aarch64-linux-gnu-g++
if ! command -v "$compiler" >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
  echo "portable: $compiler and qemu-aarch64 are needed (Debian: g++-aarch64-linux-gnu, qemu-user)" >&2
  exit 1
fi
"$bin/cmake" -S . -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64;-L;/usr/aarch64-linux-gnu" \
  -DTOKENLIGHT_TESTS=ON -DTOKENLIGHT_PYTHON=OFF >/dev/null
"$bin/cmake" --build build/aarch64
"$bin/ctest" --test-dir build/aarch64 --output-on-failure --no-tests=error --timeout 600
