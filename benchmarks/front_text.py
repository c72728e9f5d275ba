# SPDX-License-Identifier: Apache-2.0
"""What the front does with text, on the default model's vocabulary: prompts again, and masks."""

from __future__ import annotations

import json
import random
import time
from statistics import median

import torch

from benchmarks.bars import ratio_of_medians
from tests.recorded.requests import words
from tests.server.scripted_engine import template
from tokenlight.checkpoint import Checkpoint
from tokenlight.runner.constraint import Constraint
from tokenlight.text import Tokenizer
from tokenlight.text.conversation import Conversation, Shape, Text, Tool, ToolCall, ToolResult, Turn
from tokenlight.text.dialect import Dialect
from tokenlight.text.grammar.matching import Grammars
from tokenlight.text.grammar.rules import shape_rules

_PROMPT_TOKENS = 100_000
_TURN_CHARS = 4000
_ROUNDS = 3
_MASK_ROUNDS = 20
_TOOLS = (Tool(name="bash", description="Run.", parameters={"type": "object"}),)
_SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "number": {"type": "integer"},
        "email": {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.com$"},
        "kind": {"enum": ["alpha", "beta", "gamma"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            },
            "required": ["street", "zip"],
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["name", "count"],
            },
        },
    },
    "required": ["title", "number", "email", "kind", "tags", "place", "lines"],
    "additionalProperties": False,
}


def _document(random_: random.Random) -> dict[str, object]:
    return {
        "title": words(60, random_),
        "number": random_.randrange(10_000),
        "email": f"{random_.choice(('red', 'fox', 'somebody'))}@example.com",
        "kind": random_.choice(("alpha", "beta", "gamma")),
        "tags": [words(random_.randrange(5, 30), random_) for _ in range(3)],
        "place": {"street": words(40, random_), "zip": f"{random_.randrange(10_000, 99_999)}"},
        "lines": [
            {"name": words(random_.randrange(5, 40), random_), "count": random_.randrange(100)}
            for _ in range(3)
        ],
    }


def retokenize_ratio(checkpoint: Checkpoint) -> float:
    """A prompt of 100,000 tokens and one turn more, over the same prompt for the first time."""
    first_s, seen_s, render_s = [], [], []
    for round_ in range(_ROUNDS):
        random_ = random.Random(round_)
        tokenizer = Tokenizer.from_checkpoint(checkpoint)
        dialect = Dialect.of(template(), tokenizer)
        turns = [Turn("user", (Text("Do it."),))]
        num_tokens = 0
        while num_tokens < _PROMPT_TOKENS:
            step = _step(len(turns), random_)
            num_tokens += sum(len(tokenizer.encode(t.text + _said(t))) for t in step)
            turns += step
        fresh = Tokenizer.from_checkpoint(checkpoint)
        first_s.append(_encode_s(fresh, _render(dialect, turns)))
        for _ in range(_ROUNDS):
            turns += _step(len(turns), random_)
            start_s = time.perf_counter()
            text = _render(dialect, turns)
            render_s.append(time.perf_counter() - start_s)
            seen_s.append(_encode_s(fresh, text))
    print(f"prompt of {_PROMPT_TOKENS} tokens: {median(first_s) * 1e3:.1f} ms, one turn later "
          f"{median(seen_s) * 1e3:.2f} ms; template {median(render_s) * 1e3:.1f} ms")  # fmt: skip
    return ratio_of_medians(seen_s, first_s)


def _step(number: int, random_: random.Random) -> list[Turn]:
    call = ToolCall(f"call_{number}", "bash", json.dumps({"command": words(80, random_)}))
    result = ToolResult(call.id, words(_TURN_CHARS, random_))
    return [Turn("assistant", (Text("Next."), call)), Turn("tool", (result,))]


def _said(turn: Turn) -> str:
    return "".join(r.text for r in turn.results) + "".join(c.arguments for c in turn.calls)


def _render(dialect: Dialect, turns: list[Turn]) -> str:
    return dialect.render(Conversation(turns=tuple(turns), tools=_TOOLS))


def _encode_s(tokenizer: Tokenizer, text: str) -> float:
    start_s = time.perf_counter()
    tokenizer.encode(text, parse_special=True, add_bos=False)
    return time.perf_counter() - start_s


def mask_us(tokenizer: Tokenizer) -> float:
    """Median time to leave only what a schema allows of one row of logits, over a document.

    Each round has another document. Of the rounds the least: others on the machine only add.
    """
    rules = Grammars(lambda: tokenizer).compile(shape_rules(Shape(json_schema=_SCHEMA)))
    rules.result()
    rounds_s = []
    for seed in range(_MASK_ROUNDS):
        random_ = torch.Generator().manual_seed(seed)
        text = json.dumps(_document(random.Random(seed)))
        document = tokenizer.encode(text, add_bos=False)
        row = Constraint(rules, after="", num_prompt_tokens=0)
        times_s = []
        for place, token_id in enumerate(document):
            logits_V = torch.randn(tokenizer.vocab_size, generator=random_)
            start_s = time.perf_counter()
            row.shape_(logits_V, place)
            times_s.append(time.perf_counter() - start_s)
            assert logits_V[token_id] != -torch.inf
            row.note(token_id)
        rounds_s.append(median(times_s))
    print(f"masks over {tokenizer.vocab_size} tokens: medians "
          f"{min(rounds_s) * 1e6:.0f} to {max(rounds_s) * 1e6:.0f} us")  # fmt: skip
    return min(rounds_s) * 1e6
