# SPDX-License-Identifier: Apache-2.0
"""The door to a checkpoint on disk, whatever its kind."""

from dataclasses import replace
from pathlib import Path

from tokenlight.base.errors import CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import Checkpoint, TokenizerSource
from tokenlight.checkpoint.gguf.file import open_gguf
from tokenlight.checkpoint.huggingface.folder import folder_tokenizer, open_folder

_OF_FOLDERS = {".safetensors", ".json"}


def open_checkpoint(
    path: Path, *, has_weights: bool = True, tokenizer: str | Path | None = None
) -> Checkpoint:
    """Read and check a checkpoint's headers; its tensors are not touched.

    Args:
        path: a GGUF file (of a split one, any part), or a folder of Hugging Face's kind.
        has_weights: whether a folder must have them; where not, its tensors are not looked at.
        tokenizer: a folder with tokenizer.json or tokenizer.model, or a GGUF file, whose tokenizer
            takes the place of the checkpoint's own; None: that one.

    Raises:
        CheckpointNotFound: there is no such file, or no tokenizer where one is named.
        CheckpointCorrupt: the file is cut short or contradicts itself.
        UnsupportedCheckpoint: the file is sound, but not of a kind that we have.
    """
    if tokenizer is not None:
        own = open_checkpoint(path, has_weights=has_weights)
        return replace(own, tokenizer=_open_tokenizer(Path(tokenizer)))
    if path.is_dir():
        return open_folder(path, has_weights=has_weights)
    if path.is_file() and path.suffix in _OF_FOLDERS:
        raise UnsupportedCheckpoint(
            f"{path}: one file of a folder with config.json and safetensors; give the folder, "
            f"{path.absolute().parent}"
        )
    if path.is_file():
        return open_gguf(path)
    state = "is neither a file nor a folder" if path.exists() else "there is no such file or folder"
    raise CheckpointNotFound(
        f"{path}: {state}; give a GGUF file, or a folder with config.json and safetensors"
    )


def _open_tokenizer(path: Path) -> TokenizerSource:
    """The raw material of a tokenizer alone."""
    source = folder_tokenizer(path) if path.is_dir() else open_checkpoint(path).tokenizer
    if source is None or (source.gguf is None and not source.files):
        raise CheckpointNotFound(
            f"{path}: there is no tokenizer; give a folder with tokenizer.json, or a GGUF file"
        )
    return source
