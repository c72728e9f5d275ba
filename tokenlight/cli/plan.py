# SPDX-License-Identifier: Apache-2.0
"""tokenlight plan: what each rank would hold, run and send. Needs no GPU and no weights.

MODEL is a GGUF file, a folder with config.json, or a Hub id, of which config.json alone is fetched.
Weights that are not there are taken as bfloat16. Activations and KV are bfloat16, as on a GPU,
unless --dtype says otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenlight.base.errors import CheckpointNotFound, ConfigError
from tokenlight.cli.plan_svg import draw
from tokenlight.config import ParallelConfig
from tokenlight.config.flags import build, flags_of, given, refuse_empty

if TYPE_CHECKING:
    from tokenlight.checkpoint import Checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a GGUF file, a folder with config.json, or a Hub id (owner/name)",
    )
    parser.add_argument("--revision", metavar="TEXT", help="of a Hub model; default: main")
    for flag in flags_of(ParallelConfig):
        names = ["--" + flag.path.replace("_", "-"), flag.name or ""]
        parser.add_argument(
            *names, dest=flag.path, type=int, metavar="N", default=argparse.SUPPRESS, help=flag.help
        )
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="whose share to show")
    parser.add_argument("--json", action="store_true", help="print it for programs")
    parser.add_argument("--svg", metavar="FILE", help="draw ranks, calls and collectives")


def run(args: argparse.Namespace) -> int:
    refuse_empty("MODEL", args.model)
    asked = build(ParallelConfig, given(args, ParallelConfig))
    plan = _plan(_open(args.model, args.revision), asked, args)
    if args.svg:
        _write(Path(args.svg), draw(plan))
    print(json.dumps(plan, indent=1) if args.json else "\n".join(_text(plan)))
    return 0


def _write(path: Path, drawing: str) -> None:
    try:
        path.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--svg {path} cannot be written: {error.strerror}; name a file in a folder of yours"
        ) from None


def _open(model: str, revision: str | None) -> Checkpoint:
    """A path wins over a Hub id of the same spelling, as everywhere."""
    from tokenlight.checkpoint import find_local_model, is_hub_id, open_checkpoint

    path = find_local_model(model)
    if path is not None:
        return open_checkpoint(path, has_weights=path.is_file() or _has_weights(path))
    if not is_hub_id(model) or model.startswith("."):
        raise CheckpointNotFound(
            f"{model}: there is no such file or folder, and it is not a Hub id (owner/name); "
            f"give a GGUF file, a folder with config.json, or a Hub id"
        )
    return _open_from_hub(model, revision)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _open_from_hub(model: str, revision: str | None) -> Checkpoint:
    from tokenlight.checkpoint import fetch_hub_config, find_hub_gguf, open_checkpoint

    if ":" not in model:
        return open_checkpoint(fetch_hub_config(model, revision=revision), has_weights=False)
    file = find_hub_gguf(model, revision=revision)
    if file is None:
        raise CheckpointNotFound(
            f"{model} is not in the Hub's cache, and a GGUF file says nothing before it is whole; "
            f"run `tokenlight pull {model}` first, or plan the model that it was made of"
        )
    return open_checkpoint(file)


def _plan(
    checkpoint: Checkpoint, asked: ParallelConfig, args: argparse.Namespace
) -> dict[str, Any]:
    import torch

    from tokenlight.models import cache_specs, plan_model, shard_model
    from tokenlight.spmd import Mesh, Widths

    widths = Widths(
        num_ranks=asked.num_ranks,
        attn_tp=asked.attn_width,
        dense_tp=asked.dense_width,
        moe_tp=asked.moe_width,
    )
    if not 0 <= args.rank < widths.num_ranks:
        raise ConfigError(
            f"--rank {args.rank}: the ranks are 0 to {widths.num_ranks - 1} of {widths.num_ranks}"
        )
    mesh, dtype = Mesh.of(widths).at(args.rank), getattr(torch, args.dtype)
    made = plan_model(
        shard_model(checkpoint, mesh, dtype),
        cache_specs(checkpoint, mesh),
        dtype=dtype,
        kv_dtype=dtype,
    )
    return {
        "model": checkpoint.name,
        "model_type": checkpoint.model_type,
        "num_ranks": widths.num_ranks,
        "rank": args.rank,
        "weights_are": "stored" if checkpoint.tensors else "bfloat16",
        "groups": {role: list(mesh.ranks(axes)) for role, axes in mesh.roles.items()},
        **made.as_dict(),
    }


def _text(plan: dict[str, Any]) -> list[str]:
    groups = ", ".join(f"{role} {_ranks(g)}" for role, g in plan["groups"].items() if len(g) > 1)
    lines = [f"{plan['model']} ({plan['model_type']}) on {plan['num_ranks']} ranks, rank "
             f"{plan['rank']}" + (f": {groups}" if groups else "")]  # fmt: skip
    for layer in plan["layers"]:
        lines += ["", _named(layer["names"])]
        lines += [_call(call) for call in layer["calls"]]
    held, calls = plan["weight_bytes"], plan["collectives"]
    is_guess = plan["weights_are"] != "stored"
    lines += [
        "",
        f"weights   {_size(held)} on this rank, {_size(plan['replicated_bytes'])} of them on every "
        f"rank: {', '.join(plan['replicated']) or 'none'}",
        *(["          as bfloat16: their files are not here"] if is_guess else []),
        f"KV        {_size(plan['kv_token_bytes'])} per token on this rank",
        f"calls     {', '.join(f'{n} {op}' for op, n in calls.items()) or 'nothing'} per step",
        f"sends     {_size(plan['sent_token_bytes'])} per token and "
        f"{_size(plan['sent_sampled_row_bytes'])} per sampled row",
    ]
    return lines


def _call(call: dict[str, Any]) -> str:
    if not call["group"]:
        return f"  {call['op']:<18} {call['at']:<28} {call['layout']}".rstrip()
    per = "token" if call["row"] == "T" else "sampled row"
    return (
        f"* {call['op']:<18} ranks {_ranks(call['group']):<22} {call['layout']}  "
        f"{_size(call['sent_bytes'])} per {per}"
    )


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}, {len(names)} alike"


def _ranks(group: Sequence[int]) -> str:
    is_run = list(group) == list(range(group[0], group[-1] + 1)) and len(group) > 2
    return f"{group[0]}-{group[-1]}" if is_run else ",".join(map(str, group))


def _size(num_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.2f} GB"
