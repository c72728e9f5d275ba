# SPDX-License-Identifier: Apache-2.0
"""A scheduler that writes down every call and what came of it, so that a run can be replayed.

The file holds the prompts' token ids: only its owner can read it; it is made only when asked for.
Lines of JSON: the configuration, then a call each, with the arguments and a digest of the answer.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenlight.base.errors import ConfigError, TokenLightError
from tokenlight.control._control import Delta, Scheduler, SchedulerConfig, StepGuard, StepPlan

Answer = TypeVar("Answer")
Ids = NDArray[np.int32]

CONFIG_FIELDS = (
    "num_blocks",
    "block_tokens",
    "max_num_requests",
    "max_step_tokens",
    "max_model_tokens",
    "prefix_reuse",
    "overlap",
    "output_margin_tokens",
    "max_preemptions",
    "min_copy_tokens",
    "max_events",
    "num_host_blocks",
)


def pack(ids: Ids | None) -> str | None:
    return None if ids is None else b64encode(np.asarray(ids, np.int32).tobytes()).decode()


def digest_of_plan(plan: StepPlan | None) -> str | None:
    """Of every number that a runner sees: two plans with one digest are the same, bit for bit."""
    if plan is None:
        return None
    digest = blake2b(digest_size=16)
    arrays = (
        plan.request_ids,
        plan.slots,
        plan.token_ids,
        plan.positions,
        plan.query_starts,
        plan.kv_lens,
        plan.sampled_rows,
        plan.sampled_requests,
        plan.state_blocks,
        plan.copies,
        plan.patches,
    )
    for array in arrays:
        digest.update(f"{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def digest_of_deltas(deltas: list[Delta]) -> str:
    digest = blake2b(digest_size=16)
    for delta in deltas:
        counts = (delta.num_cached_tokens, delta.num_sampled_tokens)
        digest.update(f"{delta.id} {delta.token_ids} {delta.finish_reason} {counts}".encode())
    return digest.hexdigest()


class RecordingScheduler(Scheduler):
    """Used as any scheduler. A call that fails is recorded with its error's code.

    Copies between tiers are not recorded: a run with a host tier cannot be replayed.
    """

    _descriptor: int | None = None

    def __init__(self, config: SchedulerConfig, path: Path) -> None:
        """Begin a recording.

        Raises:
            ConfigError: the file cannot be written.
        """
        super().__init__(config)
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.fchmod(self._descriptor, 0o600)  # the file may have been there, open to others
        except OSError as error:
            raise ConfigError(
                f"--record-control {path} cannot be written: {error.strerror}; name a file in a "
                f"folder of yours"
            ) from None
        fields: dict[str, Any] = {name: getattr(config, name) for name in CONFIG_FIELDS}
        fields["hash_key"] = config.hash_key.hex()
        fields["more_groups"] = [
            [group.kind, group.num_blocks, group.window_tokens] for group in config.more_groups
        ]
        self._write("config", fields, None)

    def _write(self, verb: str, arguments: dict[str, Any], answer: object) -> None:
        # Unbuffered: a crash must not lose the call that led to it.
        assert self._descriptor is not None
        os.write(self._descriptor, (json.dumps([verb, arguments, answer]) + "\n").encode())

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _call(
        self,
        verb: str,
        arguments: dict[str, Any],
        run: Callable[[], Answer],
        digest: Callable[[Answer], object],
    ) -> Answer:
        try:
            answer = run()
        except TokenLightError as error:
            self._write(verb, arguments, {"error": error.code})
            raise
        self._write(verb, arguments, digest(answer))
        return answer

    def submit(
        self,
        id: int,
        prompt_token_ids: Ids,
        *,
        max_new_tokens: int,
        stop_token_ids: Ids | None = None,
        priority: int = 0,
        deadline_us: int | None = None,
        cache_salt: bytes = b"",
        adapter_id: int = 0,
    ) -> None:
        rest = {
            "max_new_tokens": max_new_tokens,
            "priority": priority,
            "deadline_us": deadline_us,
            "adapter_id": adapter_id,
        }
        arguments = {
            "id": id,
            "prompt_token_ids": pack(prompt_token_ids),
            "stop_token_ids": pack(stop_token_ids),
            "cache_salt": cache_salt.hex(),
            **rest,
        }
        submit = super().submit
        self._call(
            "submit",
            arguments,
            lambda: submit(
                id,
                prompt_token_ids,
                max_new_tokens=max_new_tokens,
                stop_token_ids=stop_token_ids,
                priority=priority,
                deadline_us=deadline_us,
                cache_salt=cache_salt,
                adapter_id=adapter_id,
            ),
            lambda answer: answer,
        )

    def abort(self, id: int) -> bool:
        abort = super().abort
        return self._call("abort", {"id": id}, lambda: abort(id), lambda answer: answer)

    def propose(self, id: int, draft_token_ids: Ids) -> None:
        propose = super().propose
        arguments = {"id": id, "draft_token_ids": pack(draft_token_ids)}
        self._call(
            "propose", arguments, lambda: propose(id, draft_token_ids), lambda answer: answer
        )

    def plan(self, now_us: int) -> StepPlan | None:
        plan = super().plan
        return self._call("plan", {"now_us": now_us}, lambda: plan(now_us), digest_of_plan)

    def commit(
        self, guard: StepGuard, sampled_token_ids: Ids, num_accepted: Ids | None = None
    ) -> list[Delta]:
        commit = super().commit
        arguments = {
            "step": guard.step,
            "sampled_token_ids": pack(sampled_token_ids),
            "num_accepted": pack(num_accepted),
        }
        return self._call(
            "commit",
            arguments,
            lambda: commit(guard, sampled_token_ids, num_accepted),
            digest_of_deltas,
        )

    def take_deltas(self) -> list[Delta]:
        take = super().take_deltas
        return self._call("take_deltas", {}, take, digest_of_deltas)
