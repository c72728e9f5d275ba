# SPDX-License-Identifier: Apache-2.0
"""tokenlight kernels: which implementation each op would use here, and why not the others."""

from __future__ import annotations

import argparse

from tokenlight.base.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: what this machine has")
    parser.add_argument("--op", metavar="NAME", help="one op only")


def run(args: argparse.Namespace) -> int:
    from tokenlight.kernels import explain  # torch is imported here, not by `tokenlight --help`

    try:
        lines = explain(device=args.device, op=args.op)
    except ValueError as error:
        raise ConfigError(f"--op {args.op}: {error}") from None
    for line in lines:
        print(line)
    return 0
