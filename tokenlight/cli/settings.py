# SPDX-License-Identifier: Apache-2.0
"""From flags, a file and the environment to configs and a model: the first of them wins."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tokenlight.base.env import Env
from tokenlight.checkpoint import FetchProgress, locate_model
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.file import read_file
from tokenlight.config.flags import build, given, refuse_empty


def server_config(args: argparse.Namespace, env: Env, file: Mapping[str, object]) -> ServerConfig:
    """What the API process is told."""
    from_env: dict[str, object] = {"log_level": env.log_level, "api_key": env.api_key}
    return build(ServerConfig, {**from_env, **file, **given(args, ServerConfig)})


def engine_config(args: argparse.Namespace, env: Env, file: Mapping[str, object]) -> EngineConfig:
    """What the engine process is told, the model as typed."""
    from_env: dict[str, object] = {"num_threads": env.num_threads}
    return build(EngineConfig, {**from_env, **file, **given(args, EngineConfig)})


def from_file(args: argparse.Namespace) -> dict[str, object]:
    """What the file of --config says, if one is named."""
    if args.config is None:
        return {}
    refuse_empty("--config", args.config)
    return read_file(Path(args.config), EngineConfig, ServerConfig)


def with_model_files(config: EngineConfig, env: Env) -> EngineConfig:
    """The config with a path for a model, its files fetched where they have to be.

    Raises:
        CheckpointNotFound: there is no such model.
        DownloadFailed: it could not be fetched.
    """
    asked = config.model
    path = locate_model(asked.model, env.cache_dir, ProgressLine().show, revision=asked.revision)
    return replace(config, model=replace(asked, model=str(path)))


# Stages that are told of again and again, as bytes come.
_MOVING = ("download", "verify")


class ProgressLine:
    """A fetch on stderr: one moving line on a terminal, a line per tenth elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last = ""

    def show(self, progress: FetchProgress) -> None:
        if progress.stage not in _MOVING:
            self._end_line()
            print(progress.text, file=sys.stderr, flush=True)
            return
        tenths = 10 * progress.done_bytes // progress.total_bytes
        if self._is_terminal:
            done, total = progress.done_bytes / 1e6, progress.total_bytes / 1e6
            line = f"{progress.text}: {done:.0f} of {total:.0f} MB"
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
        else:
            line = f"{progress.text}: {10 * tenths} %"
            if line != self._last:
                print(line, file=sys.stderr, flush=True)
        self._last = line

    def _end_line(self) -> None:
        if self._is_terminal and self._last:
            print(file=sys.stderr)
        self._last = ""
