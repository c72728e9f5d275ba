# SPDX-License-Identifier: Apache-2.0
"""What quantized kernels answer, beside the same file dequantized to float32 in transformers.

Texts are pinned: see benchmarks/texts/README.md.
"""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from tests.models.hugging_face import logits_of, read_gguf
from tokenlight.checkpoint import open_checkpoint
from tokenlight.kv import DevicePool
from tokenlight.models import CompiledModel, cache_specs, compile_model, load_model
from tokenlight.nn import Step
from tokenlight.spmd import Limits
from tokenlight.text.tokenizer import Tokenizer

TEXT = Path(__file__).parent / "texts" / "jargon.txt"
TEXT_TOKENS = 20_000
WINDOW_TOKENS = 1000
NUM_PROMPTS = 20
PROMPT_TOKENS = 48
ANSWER_TOKENS = 16
BLOCK_TOKENS = 16


class Engine:
    """The engine's own model, one request at a time, with float16 KV as it is served."""

    def __init__(self, path: Path) -> None:
        checkpoint = open_checkpoint(path)
        self._pool = DevicePool(
            cache_specs(checkpoint),
            num_blocks=128,
            block_tokens=BLOCK_TOKENS,
            dtype=torch.float16,
        )
        limits = Limits(T=1024, S=256)
        self._model: CompiledModel = compile_model(
            load_model(checkpoint), self._pool, limits=limits
        )

    def step(self, ids: list[int], start: int = 0) -> Step:
        """The tokens at positions from `start` on, after those that the cache has."""
        total = start + len(ids)
        integers = torch.tensor
        return Step(
            token_ids_T=integers(ids, dtype=torch.int32),
            positions_T=torch.arange(start, total, dtype=torch.int32),
            query_starts=integers([0, len(ids)], dtype=torch.int32),
            kv_lens=integers([total], dtype=torch.int32),
            slots=integers([0], dtype=torch.int32),
            block_table=torch.arange(128, dtype=torch.int32)[None],
            sampled_rows=integers([len(ids) - 1], dtype=torch.int32),
            kv=self._pool,
        )

    @torch.inference_mode()
    def logits_among(self, ids: list[int], others: list[list[int]]) -> Tensor:
        """Of the last token of `ids`, the last request of a step that has `others` before it."""
        texts = [*others, ids]
        columns = 128 // len(texts)
        ends = torch.tensor([len(text) for text in texts]).cumsum(0)
        step = Step(
            token_ids_T=torch.tensor([*chain(*texts)], dtype=torch.int32),
            positions_T=torch.cat([torch.arange(len(text)) for text in texts]).int(),
            query_starts=torch.cat([torch.zeros(1), ends]).int(),
            kv_lens=torch.tensor([len(text) for text in texts], dtype=torch.int32),
            slots=torch.arange(len(texts), dtype=torch.int32),
            block_table=torch.arange(columns * len(texts)).view(-1, columns).int(),
            sampled_rows=(ends - 1).int(),
            kv=self._pool,
        )
        return self._model(step)[-1]

    @torch.inference_mode()
    def last_logits(self, ids: list[int], start: int = 0) -> Tensor:
        """Of the last token."""
        return self._model(self.step(ids, start))[0]

    @torch.inference_mode()
    def all_logits(self, ids: list[int]) -> Tensor:
        """Of every token of a text."""
        x_TD = self._model.hidden(self.step(ids))
        rows = torch.arange(len(ids), dtype=torch.int32).split(256)
        return torch.cat([self._model.logits(x_TD, part) for part in rows])

    def answer(self, prompt: list[int]) -> list[int]:
        """Greedy."""
        ids, given = list(prompt), 0
        while len(ids) < len(prompt) + ANSWER_TOKENS:
            logits_V = self.last_logits(ids[given:], given)
            given = len(ids)
            ids.append(int(logits_V.argmax()))
        return ids[len(prompt) :]


def text_ids(model: Path) -> list[int]:
    """The first tokens of the pinned text."""
    tokenizer = Tokenizer.from_checkpoint(open_checkpoint(model))
    ids = list(tokenizer.encode(TEXT.read_text()))
    if len(ids) < TEXT_TOKENS:
        raise ValueError(f"{TEXT} has {len(ids)} tokens, want {TEXT_TOKENS}")
    return ids[:TEXT_TOKENS]


def perplexity_over_f32(model: Path) -> float:
    """Our perplexity over that of float32, each window of the text by itself."""
    engine, twin, ids = Engine(model), read_gguf(model), text_ids(model)
    ours = theirs = 0.0
    for first in range(0, len(ids), WINDOW_TOKENS):
        window = ids[first : first + WINDOW_TOKENS]
        ours += _surprise(engine.all_logits(window), window)
        theirs += _surprise(logits_of(twin, window), window)
    count = len(ids) - len(ids) // WINDOW_TOKENS
    print(f"perplexity {math.exp(ours / count):.4f}, in float32 {math.exp(theirs / count):.4f}")
    return math.exp((ours - theirs) / count)


def greedy_equal(model: Path) -> int:
    """Of 20 prompts, how many have the same first 16 greedy tokens as in float32."""
    engine, twin, ids = Engine(model), read_gguf(model), text_ids(model)
    equal = 0
    for number in range(NUM_PROMPTS):
        first = number * (TEXT_TOKENS // NUM_PROMPTS)
        prompt = ids[first : first + PROMPT_TOKENS]
        answer = engine.answer(prompt)
        seen = prompt + answer
        # Teacher-forced: the float32 model agrees with every token of the answer.
        expected = logits_of(twin, seen).argmax(-1)[len(prompt) - 1 : -1].tolist()
        equal += answer == expected
    return equal


def row_differences(model: Path) -> int:
    """Elements of logits that differ by how tokens were grouped into steps, or by company."""
    engine = Engine(model)
    ids = text_ids(model)[:600]
    whole = engine.last_logits(ids)
    differences = 0
    for chunks in ([1] * 5, [7, 64, 3], [300, 1, 16], [599]):
        start = 0
        for chunk in chunks:
            engine.last_logits(ids[start : start + chunk], start)
            start += chunk
        differences += int((engine.last_logits(ids[start:], start) != whole).sum())
    others = [ids[:1], ids[100:250]]
    return differences + int((engine.logits_among(ids, others) != whole).sum())


def _surprise(logits_TV: Tensor, ids: list[int]) -> float:
    """Sum over tokens of -log p, the first not counted."""
    log_p = logits_TV[:-1].float().log_softmax(-1)
    return -float(log_p.gather(1, torch.tensor(ids[1:])[:, None]).double().sum())
