# SPDX-License-Identifier: Apache-2.0
"""What the API process is told."""

from dataclasses import dataclass, field

from tokenlight.base.errors import ConfigError
from tokenlight.config.field import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP door."""

    host: str = field(default="127.0.0.1", metadata=flag("--host"))
    """Address to listen on. 0.0.0.0 opens the server to the network: set --api-key then."""

    port: int = field(default=8000, metadata=flag("--port"))
    """TCP port; 0 picks a free one."""

    api_key: str | None = field(default=None, metadata=flag("--api-key"))
    """Key that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY`.

    Default: none is asked for.
    """

    served_model_name: str | None = field(default=None, metadata=flag("--served-model-name"))
    """The model's name in the API. Default: the checkpoint's own name."""

    max_body_bytes: int = field(default=32 << 20, metadata=flag("--max-body-bytes"))
    """Largest request body that is read; more is 413."""

    max_waiting: int = field(default=1024, metadata=flag("--max-waiting"))
    """Most unfinished requests in the engine before new ones are told to come back later (429)."""

    drain_s: float = field(default=30.0, metadata=flag("--drain-timeout"))
    """On SIGTERM: how long running requests may still finish, in seconds."""

    log_level: str = field(default="info", metadata=flag("--log-level"))
    """debug, info, warning or error."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        if self.max_body_bytes < 1024:
            raise ConfigError(f"--max-body-bytes must be at least 1024, got {self.max_body_bytes}")
        if self.max_waiting < 1:
            raise ConfigError(f"--max-waiting must be at least 1, got {self.max_waiting}")
        if self.drain_s < 0:
            raise ConfigError(f"--drain-timeout must be at least 0, got {self.drain_s}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ConfigError(
                f"--log-level must be debug, info, warning or error, got {self.log_level!r}"
            )
