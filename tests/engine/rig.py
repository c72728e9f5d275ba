# SPDX-License-Identifier: Apache-2.0
"""The real loop, scheduler and runner on one thread, with arrivals written down step by step.

No process and no socket: what the loop reads before each step is exactly what the script says, so a
schedule can be repeated, and a thousand of them run in a second.
"""

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokenlight import wire
from tokenlight.config import CacheConfig, EngineConfig, ModelConfig
from tokenlight.control import Counts
from tokenlight.engine.heartbeat import Board
from tokenlight.engine.loop import Loop
from tokenlight.engine.planner import make_planner
from tokenlight.runner import ModelRunner, scheduler_config

BLOCK_TOKENS = 4
GREEDY = wire.SamplingParams(temperature=0.0)


@dataclasses.dataclass
class Answer:
    """What one request got, deltas put together."""

    token_ids: list[int] = dataclasses.field(default_factory=list)
    num_cached_tokens: int = 0
    num_sampled_tokens: int = 0
    finish_reason: str | None = None
    error: str | None = None
    prompt_logprobs: list[wire.PromptLogprobs] | None = None
    logprobs: list[wire.TokenLogprobs] = dataclasses.field(default_factory=list)

    def take(self, delta: wire.Delta) -> None:
        assert self.finish_reason is None, "a delta after the last one"
        self.token_ids += delta.token_ids
        self.num_cached_tokens = delta.num_cached_tokens
        self.num_sampled_tokens = delta.num_sampled_tokens
        self.finish_reason = delta.finish_reason
        self.error = delta.error
        self.logprobs += delta.logprobs or []
        if delta.prompt_logprobs is not None:
            assert self.prompt_logprobs is None, "told twice"
            self.prompt_logprobs = delta.prompt_logprobs


class Script:
    """A mailbox whose mail is written in advance: `arrivals[n]` is there before step n."""

    def __init__(self, arrivals: Mapping[int, Sequence[wire.ToEngine]]) -> None:
        self._arrivals = dict(arrivals)
        self._num_reads = 0
        self.answers: dict[str, Answer] = defaultdict(Answer)
        self.loop: Loop
        self._woken = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def wait(self) -> None:
        """The loop is idle: go on to the next arrival, to what another thread does, or end."""
        if self.loop.num_held:
            assert self._woken.wait(20)
            self._woken.clear()
        elif not self._arrivals:
            self.loop.is_stopping = True
        else:
            self._num_reads = min(self._arrivals)

    def read(self) -> Iterator[wire.ToEngine]:
        yield from self._arrivals.pop(self._num_reads, ())
        self._num_reads += 1

    def send(self, message: wire.FromEngine) -> None:
        assert isinstance(message, wire.Deltas)
        for delta in message.deltas:
            self.answers[delta.request_id].take(delta)


class Rig:
    """One loaded model; each `play` is a new scheduler, so a cold cache."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner

    @classmethod
    def load(cls, path: Path, *, kv_dtype: str = "auto") -> "Rig":
        return cls(
            ModelRunner.load(
                EngineConfig(
                    model=ModelConfig(model=str(path)),
                    cache=CacheConfig(block_tokens=BLOCK_TOKENS, kv_dtype=kv_dtype),
                    device="cpu",
                    num_threads=1,
                )
            )
        )

    def play(
        self, arrivals: Mapping[int, Sequence[wire.ToEngine]], **limits: object
    ) -> tuple[dict[str, Answer], Counts]:
        """Run a script to its end. `limits` are the scheduler's, over the runner's own."""
        config = dataclasses.replace(self.runner.config, **limits)
        settings = scheduler_config(config, hash_key=bytes(16))
        scheduler = make_planner(settings, config.num_groups, record=None)
        script = Script(arrivals)
        board = Board(stats=scheduler.stats(), full_step_s=1.0)
        script.loop = Loop(scheduler, self.runner, script, board, overlap=config.overlap)
        script.loop.run()
        assert set(script.answers) == {
            m.request_id for mail in arrivals.values() for m in mail if isinstance(m, wire.Generate)
        }
        assert all(answer.finish_reason for answer in script.answers.values())
        return script.answers, scheduler.stats()


def generate(
    request_id: str,
    prompt: Sequence[int],
    *,
    sampling: wire.SamplingParams = GREEDY,
    max_new_tokens: int = 16,
    stop_token_ids: tuple[int, ...] = (),
) -> wire.Generate:
    return wire.Generate(
        request_id=request_id,
        prompt_token_ids=wire.pack_token_ids(prompt),
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        stop_token_ids=stop_token_ids,
    )
