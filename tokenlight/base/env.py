# SPDX-License-Identifier: Apache-2.0
"""Every environment variable that TokenLight reads: one table, typed, parsed once.

Nothing else reads os.environ.
"""

import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokenlight.base.errors import ConfigError
from tokenlight.base.log import LogLevel

KernelTuning: typing.TypeAlias = typing.Literal["use", "ignore"]


def _path(name: str, text: str) -> Path:
    if not text:
        raise ConfigError(f"{name} is empty; set it to a directory, or unset it")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"{name} is {text}, and nobody has that home directory") from None


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {text!r}")
    return int(text)


def _default_cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tokenlight"
    except RuntimeError:  # containers may run as a user that the system does not know
        raise ConfigError(
            "this user has no home directory to keep fetched models in; set TOKENLIGHT_CACHE"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """The parsed environment. Field docstrings are shown in docs/config.md."""

    cache_dir: Path = field()
    """TOKENLIGHT_CACHE: where fetched models are kept.

    Default: $XDG_CACHE_HOME/tokenlight or ~/.cache/tokenlight.
    """

    api_key: str | None = None
    """TOKENLIGHT_API_KEY: the key that clients must send; the flag --api-key wins."""

    num_threads: int | None = None
    """TOKENLIGHT_NUM_THREADS: CPU threads of the engine. Default: one per physical core."""

    log_level: LogLevel = "info"
    """TOKENLIGHT_LOG_LEVEL: debug, info, warning or error; the flag --log-level wins."""

    rank: int = 0
    """RANK: set by torchrun and other launchers, with WORLD_SIZE, MASTER_ADDR and MASTER_PORT: 0
    serves, the others help it.
    """

    num_ranks: int | None = None
    """WORLD_SIZE: how many ranks a launcher started. Default: `tokenlight serve` starts them."""

    local_rank: int | None = None
    """LOCAL_RANK: the rank's number on its host, set by launchers of several; picks its GPU.
    Default: RANK.
    """

    num_local_ranks: int | None = None
    """LOCAL_WORLD_SIZE: how many ranks a launcher started on this host, which share its cores and
    memory. Default: all of them.
    """

    master_addr: str = "127.0.0.1"
    """MASTER_ADDR: by what name a launcher lets the other ranks find rank 0's host."""

    kernel_tuning: KernelTuning = "use"
    """TOKENLIGHT_KERNEL_TUNING: use what `tokenlight kernels tune` measured here, or ignore it.

    Ignoring it, machines of one kind choose the same kernels, so their results are the same bits.
    """


def read_env(environ: Mapping[str, str] | None = None) -> Env:
    """Parse the environment.

    Args:
        environ: what to read instead of this process's own, for tests.

    Raises:
        ConfigError: a variable is set to a value that it cannot have.
    """
    source = os.environ if environ is None else environ
    cache = source.get("TOKENLIGHT_CACHE")
    threads = source.get("TOKENLIGHT_NUM_THREADS")
    level = source.get("TOKENLIGHT_LOG_LEVEL", "info").lower()
    if level not in ("debug", "info", "warning", "error"):
        raise ConfigError(
            f"TOKENLIGHT_LOG_LEVEL must be debug, info, warning or error, got {level!r}"
        )
    tuning = source.get("TOKENLIGHT_KERNEL_TUNING", "use").lower()
    if tuning not in ("use", "ignore"):
        raise ConfigError(f"TOKENLIGHT_KERNEL_TUNING must be use or ignore, got {tuning!r}")
    num_ranks, local_rank = source.get("WORLD_SIZE"), source.get("LOCAL_RANK", "")
    # Images set these for a rank that is alone, too, and its children would inherit them.
    is_launched = num_ranks not in (None, "1")
    num_local = source.get("LOCAL_WORLD_SIZE") if is_launched else None
    return Env(
        local_rank=int(local_rank) if is_launched and local_rank.isdigit() else None,
        rank=int(source["RANK"]) if source.get("RANK", "").isdigit() else 0,
        num_ranks=None if num_ranks is None else _count("WORLD_SIZE", num_ranks),
        num_local_ranks=_count("LOCAL_WORLD_SIZE", num_local) if num_local else None,
        master_addr=source.get("MASTER_ADDR") or "127.0.0.1",
        cache_dir=(
            _default_cache_dir(source) if cache is None else _path("TOKENLIGHT_CACHE", cache)
        ),
        api_key=source.get("TOKENLIGHT_API_KEY") or None,
        num_threads=None if threads is None else _count("TOKENLIGHT_NUM_THREADS", threads),
        log_level=typing.cast(LogLevel, level),
        kernel_tuning=typing.cast(KernelTuning, tuning),
    )


def child_environ(**changes: str) -> dict[str, str]:
    """This process's environment with `changes`, for a child process."""
    return {**os.environ, **changes}
