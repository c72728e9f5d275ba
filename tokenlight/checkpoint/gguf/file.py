# SPDX-License-Identifier: Apache-2.0
"""A GGUF file, or the parts of a split one, as a checkpoint."""

import re
from pathlib import Path

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound
from tokenlight.checkpoint.checkpoint import Checkpoint, TensorEntry, TokenizerSource
from tokenlight.checkpoint.gguf.config import config_of
from tokenlight.checkpoint.gguf.header import GgufHeader, read_header

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
MAX_PARTS = 1024


def open_gguf(path: Path) -> Checkpoint:
    """Read the header of a GGUF file, and of its other parts where it is split.

    Raises:
        CheckpointError: see `read_header` and `config_of`.
    """
    part = PART.fullmatch(path.name)
    if part is None:
        return _checkpoint(path, path.name.removesuffix(".gguf"), read_header(path))
    first = path.with_name(f"{part['stem']}-00001-of-{part['count']}.gguf")
    return _checkpoint(first, part["stem"], _joined(first, part["stem"], int(part["count"])))


def _checkpoint(path: Path, name: str, header: GgufHeader) -> Checkpoint:
    config = config_of(header)
    return Checkpoint(
        path=path,
        name=name,
        layout="gguf",
        model_type=config["model_type"],
        config=config,
        tensors=header.tensors,
        tokenizer=TokenizerSource(kind="gguf", gguf=header.metadata),
        chat_template=header.metadata.find_string("tokenizer.chat_template"),
        tool_template=header.metadata.find_string("tokenizer.chat_template.tool_use"),
        bos_token_id=config["bos_token_id"],
        eos_token_ids=tuple(config["eos_token_id"]),
        num_bytes=header.num_bytes,
    )


def _joined(first: Path, stem: str, count: int) -> GgufHeader:
    """One header of all parts; the first has the metadata, each has tensors."""
    if not 1 <= count <= MAX_PARTS:
        raise CheckpointCorrupt(f"{first}: a model of {count} parts; up to {MAX_PARTS} can be")
    paths = [
        first.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)
    ]
    if absent := [path.name for path in paths if not path.is_file()]:
        raise CheckpointNotFound(
            f"{first}: the model has {count} parts, and {', '.join(absent[:5])} "
            f"{'is' if len(absent) == 1 else 'are'} missing; put all of them into one folder"
        )
    headers = [read_header(path) for path in paths]
    tensors: dict[str, TensorEntry] = {}
    for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
        stated = header.metadata.find_int("split.no"), header.metadata.find_int("split.count")
        if stated != (number, count):
            raise CheckpointCorrupt(
                f"{path}: says that it is part {stated[0]} (from 0) of {stated[1]}; "
                f"its name says {number} of {count}"
            )
        if twice := tensors.keys() & header.tensors.keys():
            raise CheckpointCorrupt(f"{path}: tensor {min(twice)!r} is in another part as well")
        tensors |= header.tensors
    stated_tensors = headers[0].metadata.find_int("split.tensors.count")
    if stated_tensors not in (None, len(tensors)):
        raise CheckpointCorrupt(
            f"{first}: the parts have {len(tensors)} tensors, but should have {stated_tensors}"
        )
    return GgufHeader(headers[0].metadata, tensors, sum(header.num_bytes for header in headers))
