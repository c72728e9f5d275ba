# SPDX-License-Identifier: Apache-2.0
"""tokenlight kernels: which implementation each op would use here, and why not the others.

`tokenlight kernels tune` measures them, and keeps what is fastest for the next start.
"""

from __future__ import annotations

import argparse

from tokenlight.base.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", help="list (default) or tune")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: what this machine has")
    parser.add_argument("--op", metavar="NAME", help="one op only")


def run(args: argparse.Namespace) -> int:
    if args.action not in ("list", "tune"):
        raise ConfigError(f"tokenlight kernels can list or tune, not {args.action!r}")
    # torch is imported here, not by `tokenlight --help`
    from tokenlight.kernels import explain, explain_tuning

    report = explain_tuning if args.action == "tune" else explain
    try:
        for line in report(device=args.device, op=args.op):
            print(line, flush=True)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return 0
