# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as a checkpoint."""

from pathlib import Path

from tokenlight.checkpoint.checkpoint import Checkpoint, TokenizerSource
from tokenlight.checkpoint.gguf_config import config_of
from tokenlight.checkpoint.gguf_header import read_header


def open_gguf(path: Path) -> Checkpoint:
    """Read a GGUF file's header.

    Raises:
        CheckpointError: see `read_header` and `config_of`.
    """
    header = read_header(path)
    config = config_of(header)
    return Checkpoint(
        path=path,
        name=path.name.removesuffix(".gguf"),
        layout="gguf",
        model_type=config["model_type"],
        config=config,
        tensors=header.tensors,
        tokenizer=TokenizerSource(kind="gguf", gguf=header.metadata),
        chat_template=header.metadata.find_string("tokenizer.chat_template"),
        bos_token_id=config["bos_token_id"],
        eos_token_ids=tuple(config["eos_token_id"]),
        num_bytes=header.num_bytes,
    )
