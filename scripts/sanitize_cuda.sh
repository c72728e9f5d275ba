#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An engine of tiny shapes under random load, watched by compute-sanitizer: out of bounds, then races.
# `make sanitize-cuda`; COMPUTE_SANITIZER names the program, ARGS go to benchmarks.gpu_load.
set -euo pipefail

python=$1
shift
sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
if ! command -v "$sanitizer" > /dev/null; then
    echo "sanitize-cuda: there is no $sanitizer; it comes with the CUDA toolkit" >&2
    exit 2
fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for tool in memcheck racecheck; do
    echo "sanitize-cuda: $tool"
    mkdir "$logs/$tool"
    # The engine is a child; each process has a log of its own, and what it says decides. Errors of
    # calls are not asked for: cuda.bindings looks for functions that a driver may lack.
    ended=0
    "$sanitizer" --tool "$tool" --target-processes all --log-file "$logs/$tool/%p.log" \
        --report-api-errors no --print-limit 100000 \
        "$python" -m benchmarks.gpu_load tiny --seconds 30 --users 3 --context 256 \
        --kv-cache-bytes 16000000 --ignore-memory "$@" || ended=$?
    # Races within the vendor's products (cuBLAS' nvjet) are not ours to mend: the rest decides.
    mine=$(cat "$logs/$tool"/*.log | grep -v 'access at nvjet' || true)
    echo "$mine"
    if [ "$ended" != 0 ]; then
        echo "sanitize-cuda: under $tool the load ended with $ended" >&2
        exit 1
    fi
    if ! grep -q 'SUMMARY: ' <<< "$mine"; then
        echo "sanitize-cuda: $tool watched no process" >&2
        exit 1
    fi
    if [ "$tool" = memcheck ]; then found='SUMMARY: [1-9]'; else found=' access at '; fi
    if grep -q "$found" <<< "$mine"; then
        echo "sanitize-cuda: $tool complained" >&2
        exit 1
    fi
done
