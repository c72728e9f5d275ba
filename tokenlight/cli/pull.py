# SPDX-License-Identifier: Apache-2.0
"""tokenlight pull: fetch a model, so that serving it later needs no network."""

from __future__ import annotations

import argparse

from tokenlight.config.flags import refuse_empty


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a Hub id: owner/name, or owner/name:Q4_K_M for a GGUF file in it; "
        "default: the default model",
    )
    parser.add_argument("--revision", metavar="TEXT", help="branch, tag or commit; default: main")


def run(args: argparse.Namespace) -> int:
    from tokenlight.base.env import read_env
    from tokenlight.checkpoint import locate_model, open_checkpoint
    from tokenlight.cli.settings import ProgressLine
    from tokenlight.cli.stopping import ends_on_sigterm

    if args.model is not None:
        refuse_empty("MODEL", args.model)
    with ends_on_sigterm():
        path = locate_model(
            args.model or "", read_env().cache_dir, ProgressLine().show, revision=args.revision
        )
    checkpoint = open_checkpoint(path)  # what cannot be read is told now, not when it is served
    print(f"{path}\n{checkpoint.model_type}, {checkpoint.num_bytes / 1e6:,.0f} MB")
    return 0
