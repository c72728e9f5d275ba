# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses; flags, --help and docs/config.md are generated from them."""

from tokenlight.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from tokenlight.config.parallel import ParallelConfig
from tokenlight.config.server import ServerConfig

__all__ = [
    "CacheConfig",
    "EngineConfig",
    "ModelConfig",
    "ParallelConfig",
    "SchedulerConfig",
    "ServerConfig",
]
