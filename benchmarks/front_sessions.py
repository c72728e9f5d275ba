# SPDX-License-Identifier: Apache-2.0
"""Ten turns of each client's session: how much of a turn the control plane finds of the one before.

The server is real and so are the tokenizer, the template and the scheduler with its prefix cache;
only the model is a script, which calls a tool each turn.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
import msgspec
import numpy as np

from tests.recorded.requests import Session
from tests.server.fake_engine import FakeEngine, Seen
from tests.server.running import make_server
from tests.server.scripted_engine import template
from tokenlight import wire
from tokenlight.config import ServerConfig
from tokenlight.control import Scheduler, SchedulerConfig
from tokenlight.text import Tokenizer

NUM_TURNS = 10
BLOCK_TOKENS = 16
CONTEXT_TOKENS = 262_144


@dataclass
class Turn:
    """What the control plane counted."""

    num_prompt_tokens: int
    num_said_tokens: int
    num_cached_tokens: int

    @property
    def num_known_blocks(self) -> int:
        """Whole blocks that the next turn could find."""
        return (self.num_prompt_tokens + self.num_said_tokens) // BLOCK_TOKENS


@dataclass
class ScheduledEngine(FakeEngine):
    """Says a text, each token of it planned and committed by the real scheduler."""

    tokenizer: Tokenizer | None = None
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.tokenizer is not None
        self.facts = msgspec.structs.replace(
            self.facts, max_model_tokens=CONTEXT_TOKENS, vocab_size=self.tokenizer.vocab_size
        )

    def start(self) -> None:
        """The scheduler belongs to the server's thread."""
        super().start()
        self._scheduler = Scheduler(
            SchedulerConfig(
                num_blocks=CONTEXT_TOKENS // BLOCK_TOKENS,
                block_tokens=BLOCK_TOKENS,
                max_num_requests=8,
                max_step_tokens=2048,
                max_model_tokens=CONTEXT_TOKENS,
                hash_key=bytes(16),
            )
        )

    async def _deltas(self, seen: Seen) -> AsyncGenerator[wire.Delta, None]:
        assert self.tokenizer is not None
        assert callable(self.script)
        eos = self.tokenizer.eos_token_ids[0]
        said = [*self.tokenizer.encode(self.script(seen), add_bos=False), eos]
        self._scheduler.submit(
            len(self.seen),
            np.array(seen.prompt_token_ids, np.int32),
            max_new_tokens=len(said),
            stop_token_ids=np.array([eos], np.int32),
        )
        num_said, num_cached = 0, 0
        while (plan := self._scheduler.plan(0)) is not None:
            sampled = np.array(said[num_said : num_said + plan.num_sampled], np.int32)
            num_said += plan.num_sampled
            for delta in self._scheduler.commit(plan.guard, sampled):
                num_cached = delta.num_cached_tokens
        self.turns.append(Turn(len(seen.prompt_token_ids), len(said) - 1, num_cached))
        yield wire.Delta(
            request_id=seen.request_id,
            token_ids=said[:-1],
            num_cached_tokens=num_cached,
            finish_reason="stop",
            num_sampled_tokens=len(said),
        )


def gap_blocks(client: str, tokenizer: Tokenizer) -> int:
    """The most blocks of a turn and its answer that the next turn did not find."""
    session = Session(client)
    name, arguments = session.tool()

    def reply(seen: Seen) -> str:
        call = json.dumps({"name": name, "arguments": arguments})
        turn = len(engine.turns)
        return (
            f"<think>\nStep {turn} of the work.\n</think>\n\n"
            f"Let me look, for the {turn}th time.\n<tool_call>\n{call}\n</tool_call>"
        )

    engine = ScheduledEngine(script=reply, tokenizer=tokenizer)
    server = make_server(engine, ServerConfig(port=0), template(), tokenizer)
    try:
        for turn in range(NUM_TURNS):
            answer = httpx.post(
                f"{server.url}{session.path}", json=session.body, headers=session.headers
            )
            answer.raise_for_status()
            session.go_on(answer.json(), f"{turn} files, {turn * 7} bytes\n" * (turn + 1))
    finally:
        server.stop()
        server.join()
    assert len(engine.turns) == NUM_TURNS
    return max(
        before.num_known_blocks - after.num_cached_tokens // BLOCK_TOKENS
        for before, after in pairwise(engine.turns)
    )
