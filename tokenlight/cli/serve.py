# SPDX-License-Identifier: Apache-2.0
"""tokenlight serve: serve a model over OpenAI's and Anthropic's protocols.

Without a model, the default one is fetched (98 MB, once) and served. Ctrl-C or SIGTERM lets running
requests finish; a second one ends at once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokenlight.base import log
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.flags import add_flags

if TYPE_CHECKING:
    from tokenlight.server.services import Services

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_log = log.get_log("cli")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="YAML file of flags by their names")
    add_flags(parser, EngineConfig, ServerConfig)


def run(args: argparse.Namespace) -> int:
    import asyncio
    from contextlib import closing

    from tokenlight.base.env import read_env
    from tokenlight.cli.settings import engine_config, from_file, server_config, with_model_files
    from tokenlight.cli.stopping import ends_on_sigterm, stop_on_signals
    from tokenlight.server.run import bind, check_certificate, serve, url_of

    env = read_env()
    file = from_file(args)
    config, typed = server_config(args, env, file), engine_config(args, env, file)
    log.configure(config.log_level)
    log.show_library("uvicorn", config.http_log_level)
    if config.host not in _LOOPBACK and config.api_key is None:
        _log.warning(log.event("open_to_the_network", host=config.host, advice="set --api-key"))
    if env.rank > 0 and (env.num_ranks or 1) > 1:
        return follow()
    check_certificate(config)
    with closing(bind(config.host, config.port)) as listener:
        with ends_on_sigterm():
            found = with_model_files(typed, env)
        _log.info(log.event("loading", model=found.model.model))

        def on_ready(svc: Services) -> None:
            tell_lowered(typed.scheduler.max_model_tokens, svc.engine.facts.max_model_tokens)
            text = banner(
                url=url_of(listener, config),
                model=svc.model_name,
                context_tokens=svc.engine.facts.max_model_tokens,
                is_default_model=not typed.model.model,
                calls_tools=svc.dialect.traits.has_tools,
                has_key=config.api_key is not None,
                command=command_here(),
            )
            print(text, flush=True)

        async def main() -> int:
            stop = asyncio.Event()
            stop_on_signals(stop)
            return await serve(config, found, listener, stop=stop, on_ready=on_ready)

        return asyncio.run(main())


def follow() -> int:
    """Be a rank that helps the serving one; what it runs, that one says."""
    from tokenlight.runner.ranks.launched import follow_leader

    follow_leader()
    return 0


def tell_lowered(asked_tokens: int | None, served_tokens: int) -> None:
    """A context that is shorter than asked is served, and said: clients plan by its length."""
    if asked_tokens is not None and served_tokens < asked_tokens:
        advice = "it is the model's own limit, or what --kv-cache-memory-bytes holds"
        lowered = log.event(
            "max_model_len_lowered", asked=asked_tokens, served=served_tokens, advice=advice
        )
        _log.warning(lowered)


def command_here() -> str:
    """This command as another shell can type it, and none that is installed elsewhere.

    `make serve` puts it on nobody's PATH, and an activated environment on this shell's alone.
    """
    beside = Path(sys.executable).with_name("tokenlight")
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m tokenlight"
    if (which := shutil.which("tokenlight")) is not None:
        is_active = sys.prefix != sys.base_prefix and Path(which).parent == beside.parent
        if not is_active and Path(which).resolve() == beside.resolve():
            return "tokenlight"
    return shlex.quote(str(beside))


def banner(
    *,
    url: str,
    model: str,
    context_tokens: int,
    is_default_model: bool,
    calls_tools: bool,
    has_key: bool,
    command: str,
) -> str:
    """What a newcomer needs to see first."""
    skills = "chat, call tools and continue text" if calls_tools else "chat and continue text"
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
    key = ' -H "authorization: Bearer $TOKENLIGHT_API_KEY"' if has_key else ""
    cannot = (
        [
            "  cannot   call tools or drive agents: it has 135 million parameters. Models of the",
            "           Hugging Face Hub that can: Qwen/Qwen3-4B-Instruct-2507 (8 GB), or",
            f"           {command} serve Qwen/Qwen3-8B   (16 GB)",
        ]
        if is_default_model
        else []
    )
    return "\n".join(
        [
            f"TokenLight serves {model}",
            f"  url      {url}/v1  (API: {url}/docs)",
            f"  can      {skills}, {context_tokens:,} tokens of context",
            *cannot,
            f"  try      curl {url}/v1/chat/completions{key} \\",
            "             -H 'content-type: application/json' \\",
            f"             -d '{json.dumps(body)}'",
            f"  or       {command} chat --url {url}",
            "  stop     Ctrl-C",
        ]
    )
