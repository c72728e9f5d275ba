# SPDX-License-Identifier: Apache-2.0
"""What a step gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenlight.wire import PromptLogprobs, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a step gave, in the order of the plan's sampled rows."""

    token_ids: NDArray[np.int32]
    bad_rows: NDArray[np.intp]
    """Rows whose logits were not all finite: their token means nothing."""
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Row -> what its request wants to be told."""
    bad_requests: Sequence[int] = ()
    """Requests whose prompt's logits, where they were read, were not all finite."""
    prompt_logprobs: Mapping[int, list[PromptLogprobs]] = field(default_factory=dict)
    """Request -> what it wants to be told of its prompt: once, with its first token."""
    num_accepted: NDArray[np.int32] | None = None
    """Per request that sampled, how many of its tokens stand; None: each has its one."""


class Launched(Protocol):
    """A step that was begun. Steps are waited for in the order in which they were launched."""

    def wait(self) -> Sampled:
        """What it gave, once that is known; raises what went wrong on the way."""


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was over when its launch returned."""

    sampled: Sampled

    def wait(self) -> Sampled:
        return self.sampled
