# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as `scripts/build_llama_cpp.sh` builds it: its bench, its quantizer, its server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.served import Server, free_port

_BIN = Path(".venv-peers/llama.cpp/build/bin")


class PeerMissing(Exception):
    """llama.cpp was not built."""


def _program(name: str) -> str:
    path = _BIN / name
    if not path.exists():
        raise PeerMissing(f"{path} is not there: scripts/build_llama_cpp.sh .venv-peers")
    return str(path)


def quantize(source: Path, target: Path, name: str) -> Path:
    """`source` (float16) in the mix of formats that llama.cpp calls `name`."""
    subprocess.run(
        [_program("llama-quantize"), str(source), str(target), name],
        check=True,
        capture_output=True,
    )
    return target


def tokens_per_s(
    model: Path, num_threads: int, *, prompt: int = 0, answer: int = 0, depth: int = 0
) -> float:
    """One run of `llama-bench` with its defaults (flash attention auto, float16 KV)."""
    command = [_program("llama-bench"), "-m", str(model), "-t", str(num_threads), "-o", "json"]
    command += ["-r", "1", "-p", str(prompt), "-n", str(answer), "-d", str(depth)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (result,) = json.loads(done.stdout)
    return float(result["avg_ts"])


@contextmanager
def server(model: Path, num_threads: int, context_tokens: int) -> Iterator[Server]:
    """A running `llama-server`, whose prompt cache is on by default."""
    port = free_port()
    command = [_program("llama-server"), "-m", str(model), "-t", str(num_threads)]
    command += ["-c", str(context_tokens), "-np", "1", "--port", str(port), "--no-webui"]
    start_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while not _is_ready(url):
            if process.poll() is not None or time.perf_counter() - start_s > 120:
                raise RuntimeError(f"llama-server did not start: {' '.join(command)}")
            time.sleep(0.05)
        yield Server(url, process, time.perf_counter() - start_s)
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False
