# SPDX-License-Identifier: Apache-2.0
"""StepPlan -> tensors -> tokens."""

from tokenlight.runner.model_runner import ModelRunner, Sampled
from tokenlight.runner.resolve import ResolvedConfig, resolve, scheduler_config

__all__ = ["ModelRunner", "ResolvedConfig", "Sampled", "resolve", "scheduler_config"]
