# SPDX-License-Identifier: Apache-2.0
"""What rounding a model's activations to 8 bits, as others do, would cost its answers.

The default model dequantized to float32 in transformers, with the inputs of some products rounded
in blocks of 32: its perplexity, its most likely tokens and its first greedy tokens beside its own.

python -m benchmarks.cpu_activation_bits
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from benchmarks.cpu_exact import ANSWER_TOKENS, PROMPT_TOKENS, WINDOW_TOKENS, text_ids
from tests.models.hugging_face import logits_of, read_gguf
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model

NUM_WINDOWS = 2
NUM_PROMPTS = 40
_INPUTS = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate and up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
    "head": ("lm_head",),
}
CHOICES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "15 bits, all": (15, tuple(_INPUTS)),
    "8 bits, all": (8, tuple(_INPUTS)),
    "8 bits, all but down": (8, ("qkv", "o", "gate and up", "head")),
    "8 bits, qkv, gate and up": (8, ("qkv", "gate and up")),
    "8 bits, gate and up": (8, ("gate and up",)),
    "8 bits, head": (8, ("head",)),
}


def rounded(x: Tensor, num_bits: int) -> Tensor:
    """Each 32 numbers as whole multiples of what makes the largest fit."""
    largest = 127 if num_bits == 8 else 127 * 128
    blocks = x.reshape(-1, 32)
    steps = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30) / largest
    return ((blocks / steps).round() * steps).view_as(x)


@contextmanager
def rounding(twin: PreTrainedModel, num_bits: int, inputs: tuple[str, ...]) -> Iterator[None]:
    """The model with the inputs of these products rounded."""
    names = tuple(name for group in inputs for name in _INPUTS[group])

    def hook(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (rounded(args[0], num_bits), *args[1:])

    handles = [
        module.register_forward_pre_hook(hook)
        for name, module in twin.named_modules()
        if name.endswith(names)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def greedy_answers(twin: PreTrainedModel, prompts: list[list[int]]) -> Tensor:
    """Prompts and what the model says next: [prompts, tokens]."""
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        out = twin.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=ANSWER_TOKENS,
            min_new_tokens=ANSWER_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    answers: Tensor = out
    return answers


def num_kept(twin: PreTrainedModel, answers: Tensor) -> int:
    """Of the answers, how many the model as it is now would give."""
    with torch.inference_mode():
        logits = twin(answers, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    return int((logits.argmax(-1) == answers[:, -ANSWER_TOKENS:]).all(-1).sum())


def measure(twin: PreTrainedModel, windows: list[list[int]]) -> tuple[float, Tensor]:
    """Mean of -log p over the windows, and the most likely token everywhere."""
    surprise, likely = 0.0, []
    for window in windows:
        logits_TV = logits_of(twin, window)
        log_p = logits_TV[:-1].log_softmax(-1).gather(1, torch.tensor(window[1:])[:, None])
        surprise -= float(log_p.double().mean()) / len(windows)
        likely.append(logits_TV.argmax(-1))
    return surprise, torch.cat(likely)


def main() -> None:
    """One line per choice."""
    path = fetch_default_model(read_env().cache_dir)
    twin, ids = read_gguf(path), text_ids(path)
    apart = len(ids) // NUM_PROMPTS
    prompts = [ids[n * apart : n * apart + PROMPT_TOKENS] for n in range(NUM_PROMPTS)]
    windows = [ids[n * WINDOW_TOKENS : (n + 1) * WINDOW_TOKENS] for n in range(NUM_WINDOWS)]
    answers = greedy_answers(twin, prompts)
    surprise, likely = measure(twin, windows)
    for name, (num_bits, inputs) in CHOICES.items():
        with rounding(twin, num_bits, inputs):
            other, others = measure(twin, windows)
            kept = num_kept(twin, answers)
        print(
            f"{name}: perplexity over float32 {math.exp(other - surprise):.5f}, "
            f"most likely token the same {float((likely == others).float().mean()):.4f}, "
            f"{kept} of {NUM_PROMPTS} answers of {ANSWER_TOKENS} tokens",
            flush=True,
        )


if __name__ == "__main__":
    main()
