# SPDX-License-Identifier: Apache-2.0
"""The life of an API process: bind, start the engine, serve, drain, end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from tokenlight.base.errors import ConfigError
from tokenlight.base.log import event, get_log
from tokenlight.checkpoint import Checkpoint, open_checkpoint
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.engine.client import AsyncLLM
from tokenlight.server.app import make_app
from tokenlight.server.http.connection import Connection, ConnectionLimits
from tokenlight.server.metrics import Metrics
from tokenlight.server.services import Services
from tokenlight.server.store import ResponseStore
from tokenlight.text import ChatTemplate, Tokenizer
from tokenlight.text.dialect import Dialect

_Result = TypeVar("_Result")

_log = get_log("server")

EXIT_ENGINE_DEAD = 70
# How long a server whose engine died still says so (503) before it ends.
_DEAD_GRACE_S = 2.0
# How long connections may take to close once nothing is left to answer.
_CLOSE_GRACE_S = 5
# Longer than any client library keeps an idle connection: the client closes first, so that no
# request meets a connection that is being closed.
_IDLE_CONNECTION_S = 75
# Files that the server has open beside its connections, generously.
_OWN_OPEN_FILES = 128


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything expensive starts. Connections are refused until it listens.

    Raises:
        ConfigError: the address is in use, not this machine's, or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(
            f"--host {host} is no address of this machine: {error.strerror}; try 127.0.0.1"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _refused_address(host, port, error) from None
    return listener


def _refused_address(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use; stop what listens there, or choose another --port "
            f"(0 picks a free one)"
        )
    return ConfigError(f"cannot listen on {host} port {port}: {error.strerror}")


def url_of(listener: socket.socket, config: ServerConfig) -> str:
    """Where a client on this machine reaches the listener."""
    scheme = "https" if config.ssl_certfile else "http"
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"


def check_certificate(config: ServerConfig) -> None:
    """Raises ConfigError when the certificate and its key cannot be used; before a model loads."""
    if config.ssl_certfile is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            config.ssl_certfile,
            config.ssl_keyfile,
            password=lambda: "",  # else Python asks for one on the terminal
        )
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"--ssl-certfile {config.ssl_certfile} with --ssl-keyfile {config.ssl_keyfile} cannot "
            f"be used: {error.strerror or error}; both are PEM files of one certificate, the key "
            f"without a password"
        ) from None


def allow_open_files(num_connections: int) -> None:
    """Raise this process's limit of open files so that so many connections fit, if it may."""
    wanted = num_connections + _OWN_OPEN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _log.warning(
            event("few_open_files", limit=allowed, wanted=wanted, advice="lower --max-connections")
        )


class HttpServer(uvicorn.Server):
    """uvicorn, with its signal handling and its ten wake-ups a second left out."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Close what is open and return from `serve`."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the command's business

    async def main_loop(self) -> None:
        while not await self.on_tick(counter=0):  # refreshes the date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._ending.wait()


def make_http_server(svc: Services) -> HttpServer:
    """An HTTP/1.1 server around these services."""
    limits = ConnectionLimits(
        max_connections=svc.config.max_connections, client_timeout_s=svc.config.client_timeout_s
    )
    return HttpServer(
        uvicorn.Config(
            make_app(svc),
            lifespan="off",
            ws="none",
            http=functools.partial(Connection, limits=limits),  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            server_header=False,
            root_path=svc.config.root_path,
            ssl_keyfile=svc.config.ssl_keyfile,
            ssl_certfile=svc.config.ssl_certfile,
            timeout_keep_alive=_IDLE_CONNECTION_S,
            timeout_graceful_shutdown=_CLOSE_GRACE_S,
        )
    )


async def serve(
    config: ServerConfig,
    engine_config: EngineConfig,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    on_ready: Callable[[Services], None],
) -> int:
    """Serve until asked to stop or the engine dies.

    Args:
        config: of this process.
        engine_config: of the engine process; `model.model` is a file that exists.
        listener: from `bind`; closed at the end.
        stop: set it to drain and return.
        on_ready: called once requests are answered.

    Returns:
        The exit code: 0 when asked to stop, EXIT_ENGINE_DEAD when the engine ended by itself.

    Raises:
        ConfigError, CheckpointError, EngineError: it could not start.
    """
    allow_open_files(config.max_connections)
    with contextlib.closing(listener):
        svc = await _unless(stop, start_services(config, engine_config))
        if svc is None:
            return 0
        try:
            return await serve_until(stop, svc, listener, on_ready=on_ready)
        finally:
            await svc.engine.close()
            svc.store.close()


async def start_services(config: ServerConfig, engine_config: EngineConfig) -> Services:
    """Start the engine; meanwhile, read what turns text into tokens. The engine is the caller's."""
    checkpoint = await asyncio.to_thread(open_model, config, engine_config)
    store = make_store(config)
    starting = asyncio.create_task(
        AsyncLLM.start(
            engine_config,
            max_unfinished=config.max_waiting,
            max_silence_s=config.stall_s,
            log_level=config.log_level,
        )
    )
    try:
        # What is wrong with a tokenizer is said at once, not when a large model has been loaded.
        tokenizer, dialect = await asyncio.to_thread(_read_text, checkpoint, config)
        engine = await starting
    except BaseException:
        store.close()
        await _end(starting)
        raise
    advised = checkpoint.sampling if config.sampling_defaults == "model" else {}
    if advised:
        _log.info(event("sampling_defaults", **advised))
    name = config.served_model_names[0] if config.served_model_names else checkpoint.name
    return Services(
        config=config,
        model_name=name,
        checkpoint_name=checkpoint.name,
        engine=engine,
        tokenizer=tokenizer,
        dialect=dialect,
        metrics=Metrics(name),
        store=store,
        advised=advised,
    )


async def _end(starting: asyncio.Task[AsyncLLM]) -> None:
    """Give back an engine that is being started, or has been."""
    starting.cancel()
    (started,) = await asyncio.gather(starting, return_exceptions=True)
    if isinstance(started, AsyncLLM):
        await started.close()


def make_store(config: ServerConfig) -> ResponseStore:
    return ResponseStore(
        config.response_store,
        max_bytes=config.response_store_bytes,
        max_age_s=config.response_store_age_s,
    )


def open_model(config: ServerConfig, engine_config: EngineConfig) -> Checkpoint:
    """The checkpoint, with the tokenizer and the template that flags put in place of its own."""
    has_weights = engine_config.model.load_format != "dummy"
    checkpoint = open_checkpoint(
        Path(engine_config.model.model),
        has_weights=has_weights,
        tokenizer=engine_config.model.tokenizer,
    )
    if config.chat_template is None:
        return checkpoint
    try:
        source = Path(config.chat_template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fault = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"--chat-template {config.chat_template} cannot be read: {fault}; name a file with a "
            f"Jinja2 template"
        ) from None
    if not source.strip():
        raise ConfigError(
            f"--chat-template {config.chat_template} is empty, so every prompt would be; name a "
            f"file with a Jinja2 template"
        )
    return replace(checkpoint, chat_template=source, tool_template=None)


def _read_text(checkpoint: Checkpoint, config: ServerConfig) -> tuple[Tokenizer, Dialect]:
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    dialect = Dialect.of(
        ChatTemplate.from_checkpoint(checkpoint),
        tokenizer,
        tool_call_parser=config.tool_call_parser,
        reasoning_parser=config.reasoning_parser,
    )
    return tokenizer, dialect


async def serve_until(
    stop: asyncio.Event,
    svc: Services,
    listener: socket.socket,
    *,
    on_ready: Callable[[Services], None],
) -> int:
    """Answer requests until `stop` is set or the engine dies; see `serve`."""
    http = make_http_server(svc)
    try:
        listener.listen(http.config.backlog)
    except OSError as error:
        raise _refused_address(svc.config.host, svc.config.port, error) from None
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    dying = asyncio.create_task(svc.engine.wait_dead())
    stopping = asyncio.create_task(stop.wait())
    try:
        on_ready(svc)
        await asyncio.wait((serving, dying, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            await _drain(svc)
            return 0
        if dying.done():
            _log.error(event("engine_dead", reason=dying.result()))
            await asyncio.wait((stopping,), timeout=_DEAD_GRACE_S)
            return EXIT_ENGINE_DEAD
        serving.result()
        return 0
    finally:
        dying.cancel()
        stopping.cancel()
        http.end()
        await serving


async def _drain(svc: Services) -> None:
    svc.lifecycle.stop()
    _log.info(event("draining", running=svc.engine.num_unfinished, limit_s=svc.config.drain_s))
    await svc.engine.close(svc.config.drain_s)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """The result of `work`, or None when `stop` comes first; `work` is cancelled then."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
