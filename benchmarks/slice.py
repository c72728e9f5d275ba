# SPDX-License-Identifier: Apache-2.0
"""The served default model beside a plain transformers bf16 model of the same shape.

Speeds are medians over interleaved rounds of one run: only ratios are compared, since the machine
is shared. Start-up is compared with `import torch`; memory is what the processes hold beyond the
model's file and the KV pool, after a load that has filled the pool.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.bars import Bar, ratio_of_medians, report
from benchmarks.served import Server, serve
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model, open_checkpoint

BARS = [
    Bar("prefill_512_tps_vs_torch", ">=", 0.5),
    Bar("decode_b1_tps_vs_torch", ">=", 1.5),
    Bar("batch8_over_batch1", ">=", 3.0),
    Bar("rss_over_file_plus_kv_mb", "<=", 450),
    Bar("ready_over_import_torch_s", "<=", 3.0),
    Bar("idle_cpu_percent", "<=", 1.0),
]

ROUNDS = 5
PREFILL_TOKENS = 512
DECODE_TOKENS = 96
KV_BYTES = 256 << 20
IDLE_S = 20.0


class TorchPeer:
    """transformers' llama in bf16 with random weights of the default model's shape."""

    def __init__(self, config: dict[str, object]) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        self._torch = torch
        known = {k: v for k, v in config.items() if k != "model_type"}
        self._model = LlamaForCausalLM(LlamaConfig(**known)).to(torch.bfloat16).eval()
        self._vocab_size = self._model.config.vocab_size

    def prefill_tokens_per_s(self, num_tokens: int) -> float:
        """One forward over a prompt; logits of its last token only, as a server needs them."""
        ids = self._torch.randint(self._vocab_size, (1, num_tokens))
        start_s = time.perf_counter()
        with self._torch.inference_mode():
            self._model(ids, logits_to_keep=1)
        return num_tokens / (time.perf_counter() - start_s)

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        """`generate` with a KV cache, greedy; the prompt's own time taken off."""
        ids = self._torch.randint(self._vocab_size, (1, 16))

        def generate_s(count: int) -> float:
            start_s = time.perf_counter()
            self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
            return time.perf_counter() - start_s

        return (num_tokens - 1) / (generate_s(num_tokens) - generate_s(1))


def random_prompt(rng: random.Random, num_tokens: int) -> list[int]:
    """Token ids that no earlier prompt began with: nothing is found in the prefix cache."""
    return [rng.randrange(1000, 40000) for _ in range(num_tokens)]


def prefill_tokens_per_s(server: Server, rng: random.Random) -> float:
    """Prompt tokens over the time to the first token, HTTP included."""
    answer = server.complete(random_prompt(rng, PREFILL_TOKENS), 1)
    return PREFILL_TOKENS / answer.time_to_first_token_s


def story(number: int) -> str:
    """A prompt that the model answers at length."""
    return f"Chapter {number}. Once upon a time, in a village by the sea, there lived"


def batch_tokens_per_s(server: Server, streams: int, first: int) -> float:
    """All tokens of `streams` concurrent answers over the time from the last first token on."""
    with ThreadPoolExecutor(streams) as pool:
        prompts = [story(first + i) for i in range(streams)]
        answers = list(pool.map(lambda prompt: server.complete(prompt, DECODE_TOKENS), prompts))
    start_s = max(answer.token_times_s[0] for answer in answers)
    end_s = min(answer.token_times_s[-1] for answer in answers)
    tokens = sum(sum(start_s < t <= end_s for t in answer.token_times_s) for answer in answers)
    return tokens / (end_s - start_s)


def speeds(server: Server, peer: TorchPeer) -> dict[str, float]:
    """The three speed ratios, from interleaved rounds."""
    rng = random.Random(0)
    ours: dict[str, list[float]] = {"prefill": [], "decode": [], "batch8": []}
    theirs: dict[str, list[float]] = {"prefill": [], "decode": []}
    prefill_tokens_per_s(server, rng)
    peer.prefill_tokens_per_s(PREFILL_TOKENS)
    for i in range(ROUNDS):
        ours["prefill"].append(prefill_tokens_per_s(server, rng))
        theirs["prefill"].append(peer.prefill_tokens_per_s(PREFILL_TOKENS))
        ours["decode"].append(server.complete(story(i), DECODE_TOKENS).decode_tokens_per_s)
        theirs["decode"].append(peer.decode_tokens_per_s(DECODE_TOKENS // 2))
        ours["batch8"].append(batch_tokens_per_s(server, 8, first=100 + 8 * i))
    for name, values in ours.items():
        beside = f", transformers {statistics.median(theirs[name]):.1f}" if name in theirs else ""
        print(f"{name}: {statistics.median(values):.1f} tokens/s{beside}")
    return {
        "prefill_512_tps_vs_torch": ratio_of_medians(ours["prefill"], theirs["prefill"]),
        "decode_b1_tps_vs_torch": ratio_of_medians(ours["decode"], theirs["decode"]),
        "batch8_over_batch1": ratio_of_medians(ours["batch8"], ours["decode"]),
    }


def import_torch_s() -> float:
    """Wall time of a Python process that imports torch and ends."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start_s


def ready_over_import_torch_s(model: str) -> float:
    """From the command to the first 200 of /health, less `import torch`; interleaved medians."""
    ready, imports = [], []
    for _ in range(ROUNDS):
        imports.append(import_torch_s())
        with serve(model) as server:
            ready.append(server.ready_s)
    print(f"ready: {statistics.median(ready):.2f} s, torch {statistics.median(imports):.2f} s")
    return statistics.median(ready) - statistics.median(imports)


def idle_cpu_percent(server: Server) -> float:
    """CPU of all processes of an idle server, per cent of one core."""
    time.sleep(1)
    before_s = server.cpu_s()
    time.sleep(IDLE_S)
    return 100 * (server.cpu_s() - before_s) / IDLE_S


def fill_kv_pool(server: Server) -> None:
    """Prompts that together are larger than the pool: each of its pages is touched."""
    rng = random.Random(1)
    for _ in range(8):
        server.complete(random_prompt(rng, 2000), 1)


def main() -> int:
    """Measure all bars and report them."""
    model = fetch_default_model(read_env().cache_dir)
    measured: dict[str, float] = {
        "ready_over_import_torch_s": ready_over_import_torch_s(str(model))
    }
    with serve(str(model), "--kv-cache-memory-bytes", str(KV_BYTES)) as server:
        measured["idle_cpu_percent"] = idle_cpu_percent(server)
        measured.update(speeds(server, TorchPeer(open_checkpoint(model).config)))
        fill_kv_pool(server)
        held_bytes = server.rss_bytes() - model.stat().st_size - KV_BYTES
        measured["rss_over_file_plus_kv_mb"] = held_bytes / 1e6
    return report(BARS, measured, missing={})


if __name__ == "__main__":
    sys.exit(main())
