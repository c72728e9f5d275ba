# SPDX-License-Identifier: Apache-2.0
"""What rounding a model's activations to 8 bits, as others do, would cost its answers.

The default model dequantized to float32 in transformers, with the inputs of some products rounded
in blocks: its perplexity, its most likely tokens and its first greedy tokens beside its own. These
are the rows of docs/tuning/cpu.md, "Eight bits for activations".

python -m benchmarks.cpu_activation_bits
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from benchmarks.cpu_exact import ANSWER_TOKENS, NUM_PROMPTS, PROMPT_TOKENS, WINDOW_TOKENS, text_ids
from tests.models.hugging_face import logits_of, read_gguf
from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model

NUM_WINDOWS = 2
# The bar's prompts are every other one of these.
PROMPTS_PER_BARS = 2
_INPUTS = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate and up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
    "head": ("lm_head",),
}
_LARGEST = {8: 127, 15: 127 * 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """To whole multiples of a scale, one for each block of numbers."""

    num_bits: int = 8
    inputs: tuple[str, ...] = tuple(_INPUTS)
    """Of which products."""
    block: int = 32
    """Numbers that share a scale."""
    num_scales: int = 1
    """From how many scales each block takes the one of the least squared error."""

    def __call__(self, x: Tensor) -> Tensor:
        blocks = x.reshape(-1, self.block)
        widest = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30)
        best = torch.full_like(widest, math.inf)
        rounded = blocks
        for i in range(self.num_scales):
            # The first makes the largest number fit; each later one is finer, and cuts it.
            largest = _LARGEST[self.num_bits]
            scales = widest / (largest + i)
            tried = (blocks / scales).round().clamp(-largest, largest) * scales
            error = (tried - blocks).square().sum(-1, keepdim=True)
            rounded = torch.where(error < best, tried, rounded)
            best = torch.minimum(error, best)
        return rounded.view_as(x)


CHOICES: Mapping[str, Rounding] = {
    "15 bits, all": Rounding(num_bits=15),
    "8 bits, all": Rounding(),
    "8 bits, all, the best of eight scales": Rounding(num_scales=8),
    "8 bits, all, in blocks of 16": Rounding(block=16),
    "8 bits, all but down": Rounding(inputs=("qkv", "o", "gate and up", "head")),
    "8 bits, qkv, gate and up": Rounding(inputs=("qkv", "gate and up")),
    "8 bits, gate and up": Rounding(inputs=("gate and up",)),
    "8 bits, head": Rounding(inputs=("head",)),
}


@contextmanager
def applied(rounding: Rounding, twin: PreTrainedModel) -> Iterator[None]:
    """The model with the inputs of its products rounded."""
    names = tuple(name for group in rounding.inputs for name in _INPUTS[group])

    def hook(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (rounding(args[0]), *args[1:])

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


def kept(twin: PreTrainedModel, answers: Tensor) -> Tensor:
    """Of each answer, whether the model as it is now would give it."""
    with torch.inference_mode():
        logits = twin(answers, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    same: Tensor = (logits.argmax(-1) == answers[:, -ANSWER_TOKENS:]).all(-1)
    return same


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
    num_prompts = PROMPTS_PER_BARS * NUM_PROMPTS
    apart = len(ids) // num_prompts
    prompts = [ids[n * apart : n * apart + PROMPT_TOKENS] for n in range(num_prompts)]
    windows = [ids[n * WINDOW_TOKENS : (n + 1) * WINDOW_TOKENS] for n in range(NUM_WINDOWS)]
    answers = greedy_answers(twin, prompts)
    surprise, likely = measure(twin, windows)
    for name, rounding in CHOICES.items():
        with applied(rounding, twin):
            other, others = measure(twin, windows)
            same = kept(twin, answers)
        print(
            f"{name}: perplexity over float32 {math.exp(other - surprise):.5f}, "
            f"most likely token the same {float((likely == others).float().mean()):.4f}, "
            f"{int(same.sum())} of {num_prompts} answers of {ANSWER_TOKENS} tokens, "
            f"{int(same[::PROMPTS_PER_BARS].sum())} of the bar's {NUM_PROMPTS}",
            flush=True,
        )


if __name__ == "__main__":
    main()
