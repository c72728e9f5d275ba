# SPDX-License-Identifier: Apache-2.0
"""The `tokenlight` command: one file per subcommand, imported when it is asked for."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from tokenlight import __version__
from tokenlight.base.errors import ConfigError, TokenLightError
from tokenlight.config.flags import FlagParser, nearest

COMMANDS = ("serve", "chat", "pull", "env", "kernels", "plan")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 (it failed), 2 (wrong usage) or the command's own."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale may lack what a model's name has
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here, where a reader that has gone can still be answered
        return code
    except TokenLightError as error:
        print(f"tokenlight: {error.message}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone (`tokenlight env | head -1`): nothing is left to say, and
        # what is still buffered must not be tried again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else EXIT_USAGE
    name, *rest = arguments
    if name == "--version":
        print(f"tokenlight {__version__}")
        return 0
    if name not in COMMANDS:
        raise ConfigError(
            f"unknown command {name!r}{nearest(name, COMMANDS)}; see tokenlight --help"
        )
    command = _command(name)
    parser = FlagParser(prog=f"tokenlight {name}", description=command.__doc__)
    command.add_arguments(parser)
    code: int = command.run(parser.parse_strictly(rest))
    return code


def _help() -> str:
    lines = ["usage: tokenlight COMMAND [FLAGS]", "", "An LLM inference engine for agents.", ""]
    for name in COMMANDS:
        summary = (_command(name).__doc__ or "").splitlines()[0].partition(": ")[2].rstrip(".")
        lines.append(f"  {name:<8} {summary}")
    lines += ["", "  --version", "", "`tokenlight COMMAND --help` lists a command's flags."]
    return "\n".join(lines)


def _command(name: str) -> ModuleType:
    return import_module(f"tokenlight.cli.{name}")
