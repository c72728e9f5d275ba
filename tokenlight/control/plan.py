# SPDX-License-Identifier: Apache-2.0
"""What the loop asks of a scheduler and what the runner reads of a plan, whoever gives them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenlight.control._control import Delta

Ids = NDArray[np.int32]


class Plan(Protocol):
    """A step: of `StepPlan`, or of several side by side; there its fields are described."""

    @property
    def guard(self) -> Any:
        """Hand it to commit of the scheduler that gave the plan."""

    @property
    def num_requests(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_sampled(self) -> int: ...
    @property
    def request_ids(self) -> NDArray[np.int64]: ...
    @property
    def slots(self) -> Ids: ...
    @property
    def token_ids(self) -> Ids: ...
    @property
    def positions(self) -> Ids: ...
    @property
    def query_starts(self) -> Ids: ...
    @property
    def kv_lens(self) -> Ids: ...
    @property
    def sampled_rows(self) -> Ids: ...
    @property
    def sampled_requests(self) -> Ids: ...
    @property
    def patches(self) -> Ids: ...
    @property
    def block_table(self) -> Ids: ...


class Counts(Protocol):
    """What is shown of a scheduler, by the names of `Stats`."""

    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def num_free_blocks(self) -> int: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def num_cached_blocks(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def num_sampled_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def num_steps(self) -> int: ...


class Planner(Protocol):
    """The verbs of `Scheduler` that the loop uses."""

    def submit(
        self,
        id: int,
        prompt_token_ids: Ids,
        *,
        max_new_tokens: int,
        stop_token_ids: Ids | None = None,
        priority: int = 0,
        cache_salt: bytes = b"",
    ) -> None: ...

    def abort(self, id: int) -> bool: ...

    def propose(self, id: int, draft_token_ids: Ids) -> None: ...

    def plan(self, now_us: int) -> Plan | None: ...

    def commit(
        self, guard: Any, sampled_token_ids: Ids, num_accepted: Ids | None = None
    ) -> list[Delta]: ...

    def stats(self) -> Counts: ...

    @property
    def max_request_tokens(self) -> int: ...
