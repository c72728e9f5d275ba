# SPDX-License-Identifier: Apache-2.0
"""tokenlight env: what a bug report needs to say about this machine."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes no flags."""


def run(args: argparse.Namespace) -> int:
    from tokenlight.cli.environment import facts

    for name, value in facts():
        print(f"{name:<16} {value}")
    return 0
