# SPDX-License-Identifier: Apache-2.0
"""StepPlan -> tensors -> tokens."""

from tokenlight.runner.memory import MAX_FORCED_TOKENS
from tokenlight.runner.model_runner import ModelRunner
from tokenlight.runner.resolve import ResolvedConfig, resolve, scheduler_config
from tokenlight.runner.sampled import Done, Launched, Sampled

__all__ = [
    "MAX_FORCED_TOKENS",
    "Done",
    "Launched",
    "ModelRunner",
    "ResolvedConfig",
    "Sampled",
    "resolve",
    "scheduler_config",
]
