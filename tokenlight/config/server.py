# SPDX-License-Identifier: Apache-2.0
"""What the API process is told."""

import re
from dataclasses import dataclass, field
from typing import Literal

from tokenlight.base.errors import ConfigError
from tokenlight.base.log import LogLevel
from tokenlight.config.field import flag

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(:[1-9][0-9]*)?")
_DEFAULT_PORT = re.compile(r"http://.*:80|https://.*:443")  # which browsers leave out


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

    admin_api_key: str | None = field(default=None, metadata=flag("--admin-api-key"))
    """Key to the endpoints that act on other people's requests. Default: they are closed."""

    served_model_names: tuple[str, ...] = field(default=(), metadata=flag("--served-model-name"))
    """The model's names in the API; answers bear the first. Default: the checkpoint's own name."""

    chat_template: str | None = field(default=None, metadata=flag("--chat-template"))
    """A file with a Jinja2 chat template. Default: the checkpoint's own."""

    seed: int | None = field(default=None, metadata=flag("--seed"))
    """Seed of requests that bring none, so that they repeat. Default: a new one for each."""

    sampling_defaults: Literal["model", "openai"] = field(
        default="model", metadata=flag("--sampling-defaults")
    )
    """What holds where a request does not say: model takes temperature, top_p, top_k, min_p and
    repetition_penalty from the checkpoint's generation_config.json, openai is the API's own.
    """

    max_body_bytes: int = field(default=32 << 20, metadata=flag("--max-body-bytes"))
    """Largest request body that is read; more is 413."""

    max_connections: int = field(default=1024, metadata=flag("--max-connections"))
    """Most open connections; one more is told to come back later (429) and closed."""

    client_timeout_s: float = field(default=60.0, metadata=flag("--client-timeout"))
    """How long a client may take to send a whole request (408), or to take a piece of an answer
    that waits for it, in seconds. Its connection is closed then.
    """

    max_waiting: int = field(default=1024, metadata=flag("--max-waiting"))
    """Most unfinished requests in the engine before new ones are told to come back later (429)."""

    volatile_lines: Literal["neutralize", "keep"] = field(
        default="neutralize", metadata=flag("--volatile-lines")
    )
    """What to do with lines that a client rewrites on each request (Claude Code's billing header,
    a token budget): neutralize takes them out, so that the prompt's prefix stays the same.

    An answer says so in x-tokenlight-neutralized.
    """

    tool_call_parser: str | None = field(default=None, metadata=flag("--tool-call-parser"))
    """How the model writes tool calls. Default: told from its chat template."""

    reasoning_parser: str | None = field(default=None, metadata=flag("--reasoning-parser"))
    """How the model marks its reasoning. Default: told from its chat template."""

    response_store: str | None = field(default=None, metadata=flag("--response-store"))
    """SQLite file for responses that clients read or continue later.

    Default: they are kept in memory and end with the server.
    """

    response_store_bytes: int = field(default=256 << 20, metadata=flag("--response-store-bytes"))
    """Most bytes of stored responses; the oldest give way."""

    response_store_age_s: float = field(default=30 * 86400.0, metadata=flag("--response-store-age"))
    """How long a response is stored, in seconds."""

    stall_s: float = field(default=1800.0, metadata=flag("--stall-timeout"))
    """A request that gets no token for so many seconds is ended alone (503), its wait included."""

    drain_s: float = field(default=30.0, metadata=flag("--drain-timeout"))
    """On SIGTERM: how long running requests may still finish, in seconds."""

    root_path: str = field(default="", metadata=flag("--root-path"))
    """Path below which a reverse proxy serves this server, /llm for one."""

    allowed_origins: tuple[str, ...] = field(default=(), metadata=flag("--allowed-origins"))
    """Origins whose pages may call this server from a browser (CORS): https://chat.example, or *
    for any. Any site can send null too, from a sandboxed frame. Default: none may.
    """

    ssl_keyfile: str | None = field(default=None, metadata=flag("--ssl-keyfile"))
    """Private key of the certificate, PEM; with --ssl-certfile, the server speaks HTTPS."""

    ssl_certfile: str | None = field(default=None, metadata=flag("--ssl-certfile"))
    """Certificate chain, PEM."""

    log_level: LogLevel = field(default="info", metadata=flag("--log-level"))
    """From which level on this server and its engine write log lines, to stderr."""

    http_log_level: LogLevel = field(default="warning", metadata=flag("--uvicorn-log-level"))
    """The same for the HTTP library below."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        for name, value, least in (
            ("--max-body-bytes", self.max_body_bytes, 1024),
            ("--max-connections", self.max_connections, 1),
            ("--max-waiting", self.max_waiting, 1),
            ("--response-store-bytes", self.response_store_bytes, 0),
            ("--response-store-age", self.response_store_age_s, 0),
            ("--drain-timeout", self.drain_s, 0),
        ):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        for name, duration_s in (
            ("--client-timeout", self.client_timeout_s),
            ("--stall-timeout", self.stall_s),
        ):
            if duration_s <= 0:
                raise ConfigError(f"{name} must be above 0, got {duration_s}")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(
                f"--root-path must begin with a slash and not end with one, got {self.root_path!r}"
            )
        _check_origins(self.allowed_origins)
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ConfigError("--ssl-keyfile and --ssl-certfile go together; give both or neither")
        if self.seed is not None and not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"--seed must be from 0 to 2^63 - 1, got {self.seed}")


def _check_origins(origins: tuple[str, ...]) -> None:
    for origin in origins:
        if origin in ("*", "null"):
            continue
        if not _ORIGIN.fullmatch(origin) or _DEFAULT_PORT.fullmatch(origin):
            raise ConfigError(
                f"--allowed-origins takes what browsers send as Origin, http://localhost:3000 for "
                f"one, in lower case, ASCII (xn--) and without a path or a default port, or *; "
                f"several are separated by spaces; got {origin!r}"
            )
