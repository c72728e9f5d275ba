# SPDX-License-Identifier: Apache-2.0
"""What others serve, served exactly: formats, tokenizers, templates; and what it costs.

Formats are compared with the gguf package bit for bit, tokenizers with llama.cpp and transformers,
templates with transformers. Loading the default model (read, checked, packed for the kernels) is
compared with reading its file into memory, both warm. Memory per request is the slope of the
server's resident memory over tens of thousands of requests to a tiny model.
"""

import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import httpx
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.bars import Bar, report
from benchmarks.breadth_text import count_template_mismatches, count_tokenizer_mismatches
from benchmarks.served import Server, serve
from tests.models.tiny import write_tiny_llama
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model, open_checkpoint
from tokenlight.kernels.formats import FORMATS, Format
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.models import load_model
from tokenlight.weights import StoredTensor

BARS = [
    Bar("gguf_types_bit_exact", "==", len(FORMATS)),
    Bar("tokenizer_mismatches", "==", 0),
    Bar("template_mismatches", "==", 0),
    Bar("load_gbps_over_read_gbps", ">=", 0.8),
    Bar("rss_slope_bytes_per_request", "<=", 16),
]

ROWS, BLOCKS_PER_ROW = 64, 8
ROUNDS = 7
WARM_REQUESTS = 10_000
COUNTED_REQUESTS = 30_000
STREAMS = 8


def read_numbers(rows: NDArray[np.uint8], weight_format: Format) -> torch.Tensor:
    """Float32 numbers of stored rows, as a model gets them."""
    stored = torch.from_numpy(rows)
    if not weight_format.is_dense:
        return dequantize(stored, weight_format)
    shape = (len(rows), rows.shape[1] // weight_format.block_bytes)
    tensor = StoredTensor(
        name="rows", shape=shape, format=weight_format, layout="gguf", rows=stored
    )  # fmt: skip
    return tensor.dense(torch.float32)


def count_bit_exact_formats() -> int:
    """Formats whose numbers are the gguf package's, for random bytes (NaN scales included)."""
    rng = np.random.default_rng(0)
    exact = 0
    for name, weight_format in FORMATS.items():
        kind = next(k for k in gguf.GGMLQuantizationType if k.name.lower() == name)
        width = BLOCKS_PER_ROW * weight_format.block_bytes
        rows = rng.integers(0, 256, (ROWS, width), dtype=np.uint8)
        with np.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(rows, kind).astype(np.float32)
        ours = read_numbers(rows, weight_format).numpy()
        is_equal = np.array_equal(ours, theirs, equal_nan=True)
        print(f"{name}: {'bit exact' if is_equal else 'DIFFERS'}")
        exact += is_equal
    return exact


def load_over_read(model: Path) -> float:
    """Bytes per second of loading, over those of reading the same file into new memory."""
    load_model(open_checkpoint(model))  # imports, and the file's pages
    loads, reads = [], []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        model.read_bytes()
        reads.append(time.perf_counter() - start_s)
        start_s = time.perf_counter()
        load_model(open_checkpoint(model))
        loads.append(time.perf_counter() - start_s)
    load_s, read_s = statistics.median(loads), statistics.median(reads)
    size_gb = model.stat().st_size / 1e9
    print(f"load {size_gb / load_s:.2f} GB/s, read {size_gb / read_s:.2f} GB/s")
    return read_s / load_s


def send_requests(server: Server, num_requests: int) -> None:
    """Short completions over kept connections."""

    def send(share: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for number in range(share):
                body = {"prompt": f"{number % 97} and", "max_tokens": 2}
                client.post("/v1/completions", json=body).raise_for_status()

    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(send, [num_requests // STREAMS] * STREAMS))


def rss_slope_bytes_per_request() -> float:
    """Growth of the server's resident memory per request, once warm."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_llama(Path(folder) / "tiny.gguf", seed=1)
        with serve(str(model), "--kv-cache-memory-bytes", str(1 << 20)) as server:
            send_requests(server, WARM_REQUESTS)
            before_bytes = server.rss_bytes()
            send_requests(server, COUNTED_REQUESTS)
            return (server.rss_bytes() - before_bytes) / COUNTED_REQUESTS


def main() -> int:
    """Measure all bars and report them; a measurement that fails is a bar without a figure."""
    model = fetch_default_model(read_env().cache_dir)
    measurements: dict[str, Callable[[], float]] = {
        "gguf_types_bit_exact": count_bit_exact_formats,
        "tokenizer_mismatches": lambda: sum(count_tokenizer_mismatches().values()),
        "template_mismatches": lambda: sum(count_template_mismatches().values()),
        "load_gbps_over_read_gbps": lambda: load_over_read(model),
        "rss_slope_bytes_per_request": rss_slope_bytes_per_request,
    }
    measured, missing = {}, {}
    for name, measure in measurements.items():
        try:
            measured[name] = float(measure())
        except Exception as error:  # others are measured all the same
            traceback.print_exc()
            missing[name] = f"{type(error).__name__}: {error}"
    return report(BARS, measured, missing)


if __name__ == "__main__":
    sys.exit(main())
