# SPDX-License-Identifier: Apache-2.0
"""tokenlight chat: talk to a model in the terminal.

Connects to --url, or starts a server of its own. Ctrl-C stops the answer, not the chat; /reset
forgets the conversation; /exit or Ctrl-D ends.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING

from tokenlight.base.errors import ConfigError, TokenLightError
from tokenlight.base.log import LogLevel
from tokenlight.config import EngineConfig
from tokenlight.config.flags import add_flags, finite, flags_of, given, refuse_empty

if TYPE_CHECKING:
    from tokenlight.cli.talk import Message, Server

_HELP = "/reset forgets the conversation, /exit ends, Ctrl-C stops an answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        help="a running server; default: one that is started, with MODEL and the flags below",
    )
    parser.add_argument("--api-key", help="the key to it; default: TOKENLIGHT_API_KEY")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    parser.add_argument("--temperature", type=_number, metavar="X", help="default: the server's")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="most tokens per answer")
    add_flags(parser, EngineConfig)


def _number(text: str) -> float:
    try:
        return finite(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text!r}") from None


def run(args: argparse.Namespace) -> int:
    from tokenlight.base import log
    from tokenlight.base.env import read_env
    from tokenlight.cli.talk import Door, Server

    env = read_env()
    # What a chat shows is the conversation: log lines of its own server come only when asked for.
    level: LogLevel = env.log_level if env.log_level != "info" else "warning"
    log.configure(level)
    if args.url is not None:
        refuse_empty("--url", args.url)
        _refuse_flags_of_an_engine(args)
        door: AbstractContextManager[Door] = nullcontext(
            Door(args.url, args.api_key or env.api_key)
        )
    else:
        from tokenlight.cli.local_server import local_server  # half a second of imports
        from tokenlight.cli.settings import engine_config, with_model_files

        print("starting a server for this chat", file=sys.stderr, flush=True)
        config = with_model_files(engine_config(args, env, {}), env)
        door = local_server(config, level)
    parameters = {
        name: value
        for name, value in (("temperature", args.temperature), ("max_tokens", args.max_tokens))
        if value is not None
    }
    with door as opened, closing(Server(opened.url, opened.api_key)) as server:
        print(f"{server.model()}: {_HELP}", flush=True)
        Chat(server, args.system, parameters).run()
    return 0


def _refuse_flags_of_an_engine(args: argparse.Namespace) -> None:
    """Raises ConfigError where a model or its flags are typed beside a server that has its own."""
    typed = given(args, EngineConfig)
    stray = [flag.shown for flag in flags_of(EngineConfig) if flag.path in typed]
    if stray:
        raise ConfigError(
            f"{stray[0]} is for a server of this chat's own, and --url names one that runs; "
            f"leave one of the two out"
        )


class Chat:
    """The conversation and its screen."""

    def __init__(self, server: Server, system: str | None, parameters: dict[str, object]) -> None:
        self._server = server
        self._opening: list[Message] = (
            [{"role": "system", "content": _sound(system)}] if system is not None else []
        )
        self._parameters = parameters
        self._messages = list(self._opening)

    def run(self) -> None:
        if sys.stdin.isatty():
            import readline  # noqa: F401 - importing it gives input() line editing

        while (line := _read_line()) is not None:
            match line.strip():
                case "":
                    continue
                case "/exit" | "/quit":
                    return
                case "/reset":
                    self._messages = list(self._opening)
                    print("the conversation is forgotten", flush=True)
                case command if command.startswith("/") and " " not in command:
                    print(f"unknown command {command}; {_HELP}", flush=True)
                case text:
                    self._answer(text)

    def _answer(self, text: str) -> None:
        from tokenlight.cli.talk import Answer

        self._messages.append({"role": "user", "content": text})
        answer = Answer()
        try:
            with closing(self._server.ask(self._messages, answer, self._parameters)) as pieces:
                for piece in pieces:
                    print(piece, end="", flush=True)
            note = " (cut at the token limit)" if answer.finish_reason == "length" else ""
        except KeyboardInterrupt:
            note = " (stopped)"
        except TokenLightError as error:
            self._messages.pop()
            print(f"\n{error.message}", flush=True)
            return
        print(f"\n{_dim(f'[{answer.speed}{note}]')}", flush=True)
        self._messages.append({"role": "assistant", "content": answer.text})


def _read_line() -> str | None:
    """The user's next line; None at the end of input."""
    while True:
        try:
            return _sound(input("> " if sys.stdin.isatty() else ""))
        except EOFError:
            return None
        except KeyboardInterrupt:
            print(f"\n{_HELP}", flush=True)


def _sound(text: str) -> str:
    """Typed text as UTF-8 has it: bytes that a terminal or a locale got wrong do not end a chat."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text
