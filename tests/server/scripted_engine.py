# SPDX-License-Identifier: Apache-2.0
"""An engine with a long context that reads the prompt it is given and answers by a script.

It checks what it reads: what must be there is there, in order; each prompt of a session begins with
all blocks of the one before and of the answer to it, but one. Faults are kept for the test, because
an exception here would only be an error answer to the client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.server.fake_engine import EOS, FakeEngine, Seen
from tests.server.running import RunningServer, make_server
from tokenlight import wire
from tokenlight.config import ServerConfig
from tokenlight.text import ChatTemplate

CONTEXT_TOKENS = 262_144
BLOCK_TOKENS = 16
TEMPLATES = Path(__file__).parents[1] / "text/conversation/templates"


@dataclass
class Heard:
    """A prompt, and what the engine said to it."""

    text: str
    num_prompt_tokens: int
    num_cached_tokens: int
    reply: str


@dataclass
class ScriptedEngine(FakeEngine):
    """`reply` gets the prompt's text; it asserts what it likes and returns what the model says."""

    reply: Callable[[str], str] = lambda _: "All done."
    heard: list[Heard] = field(default_factory=list)
    faults: list[AssertionError] = field(default_factory=list)
    known: list[list[int]] = field(default_factory=list)
    """Prompts with their answers: what a prefix cache of this engine would hold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.facts = msgspec.structs.replace(self.facts, max_model_tokens=CONTEXT_TOKENS)
        self.script = self._reply
        self.tokens_per_delta = 7  # splits markers and arguments at changing places

    def _reply(self, seen: Seen) -> str:
        text = bytes(i for i in seen.prompt_token_ids if i < EOS).decode(errors="replace")
        try:
            said = self.reply(text)
        except AssertionError as fault:
            self.faults.append(fault)
            said = "The script does not go on."
        self.heard.append(
            Heard(text, len(seen.prompt_token_ids), self._num_cached(seen.prompt_token_ids), said)
        )
        return said

    async def _deltas(self, seen: Seen) -> AsyncGenerator[wire.Delta, None]:
        num_cached_tokens = self._num_cached(seen.prompt_token_ids)
        async for delta in super()._deltas(seen):
            if delta.finish_reason is not None:
                self.known.append([*seen.prompt_token_ids, *self.heard[-1].reply.encode()])
            yield msgspec.structs.replace(delta, num_cached_tokens=num_cached_tokens)

    def _num_cached(self, token_ids: Sequence[int]) -> int:
        """Whole blocks that some earlier prompt or answer begins with; never the last token."""
        most = 0
        for earlier in self.known:
            most = max(most, _num_common(token_ids, earlier))
        return min(most, len(token_ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS

    def check(self) -> None:
        """Raise what the script found."""
        if self.faults:
            raise self.faults[0]


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def call(name: str, arguments: str) -> str:
    """A call as the model of `template("tools")` writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def template(name: str = "tools") -> ChatTemplate:
    return ChatTemplate((TEMPLATES / f"{name}.jinja").read_text().removesuffix("\n"))


@contextmanager
def scripted(reply: Callable[[str], str] | str = "All done.", *, dialect: str = "tools", **config):
    """Serve a scripted engine on a free port; what its script found is raised at the end."""
    engine = ScriptedEngine(reply=reply if callable(reply) else lambda _: reply)
    made: RunningServer = make_server(
        engine, ServerConfig(port=0, **config), template=template(dialect)
    )
    try:
        yield made
    finally:
        made.stop()
        made.join()
    engine.check()
