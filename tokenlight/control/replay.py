# SPDX-License-Identifier: Apache-2.0
"""Replays a recording call by call and compares every answer, bit for bit.

python -m tokenlight.control.replay FILE
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenlight.base.errors import ConfigError, TokenLightError
from tokenlight.control._control import CacheGroup, Scheduler, SchedulerConfig, StepPlan
from tokenlight.control.record import Ids, digest_of_deltas, digest_of_plan


def unpack(text: str | None) -> Ids | None:
    return None if text is None else np.frombuffer(b64decode(text), np.int32)


def _ids(text: str) -> Ids:
    return np.frombuffer(b64decode(text), np.int32)


@dataclass
class Replay:
    scheduler: Scheduler
    plans: dict[int, StepPlan] = field(default_factory=dict)

    def call(self, verb: str, arguments: dict[str, Any]) -> object:
        """Make a recorded call; its answer as it would have been recorded."""
        try:
            return self._call(verb, dict(arguments))
        except TokenLightError as error:
            return {"error": error.code}

    def _call(self, verb: str, arguments: dict[str, Any]) -> object:
        match verb:
            case "submit":
                self.scheduler.submit(
                    arguments.pop("id"),
                    _ids(arguments.pop("prompt_token_ids")),
                    stop_token_ids=unpack(arguments.pop("stop_token_ids")),
                    cache_salt=bytes.fromhex(arguments.pop("cache_salt")),
                    **arguments,
                )
                return None
            case "abort":
                return self.scheduler.abort(**arguments)
            case "propose":
                drafts = _ids(arguments["draft_token_ids"])
                self.scheduler.propose(arguments["id"], drafts)
                return None
            case "plan":
                plan = self.scheduler.plan(**arguments)
                if plan is not None:
                    self.plans[plan.guard.step] = plan
                return digest_of_plan(plan)
            case "commit":
                return digest_of_deltas(self._commit(arguments))
            case "take_deltas":
                return digest_of_deltas(self.scheduler.take_deltas())
        raise ConfigError(f"a recording cannot hold the call {verb!r}")

    def _commit(self, arguments: dict[str, Any]) -> list[Any]:
        guard = self.plans[arguments["step"]].guard
        sampled = _ids(arguments["sampled_token_ids"])
        deltas = self.scheduler.commit(guard, sampled, unpack(arguments["num_accepted"]))
        del self.plans[arguments["step"]]
        return deltas


def replay(path: Path) -> tuple[int, str | None]:
    """How many calls agree, and what the first one that does not answered instead."""
    with path.open(encoding="utf-8") as file:
        verb, fields, _ = json.loads(file.readline())
        if verb != "config":
            raise ConfigError(f"{path} is not a recording: it does not begin with a configuration")
        fields["hash_key"] = bytes.fromhex(fields["hash_key"])
        fields["more_groups"] = [
            CacheGroup(kind, num_blocks=num_blocks, window_tokens=window_tokens)
            for kind, num_blocks, window_tokens in fields["more_groups"]
        ]
        run = Replay(Scheduler(SchedulerConfig(**fields)))
        num_calls = 0
        for line in file:
            verb, arguments, recorded = json.loads(line)
            answer = run.call(verb, arguments)
            if answer != recorded:
                return num_calls, f"{verb} answered {answer}, recorded {recorded}"
            num_calls += 1
    return num_calls, None


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tokenlight.control.replay FILE\n")
        return 2
    try:
        num_calls, difference = replay(Path(arguments[0]))
    except (OSError, ValueError, ConfigError) as fault:  # absent, or cut where an engine was killed
        sys.stderr.write(f"{arguments[0]} cannot be replayed: {fault}\n")
        return 2
    if difference is None:
        sys.stdout.write(f"{num_calls} calls, all answered as recorded\n")
        return 0
    sys.stdout.write(f"call {num_calls + 1} differs: {difference}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
