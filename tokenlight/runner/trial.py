# SPDX-License-Identifier: Apache-2.0
"""How long a step takes, before any request: every rank tries at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tokenlight.base.clock import now_s
from tokenlight.nn import KvCache, Step
from tokenlight.runner.batch import make_trial_step


@torch.inference_mode()
def try_step_s(model: Callable[[Step], Tensor], kv: KvCache, device: str) -> float:
    """Seconds of a one-token step, after another that pays for what only a first step does."""
    step = make_trial_step(kv, device=device)

    def run() -> None:
        model(step).sum().item()  # waits for the device

    run()
    started_s = now_s()
    run()
    return now_s() - started_s
