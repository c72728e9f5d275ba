# SPDX-License-Identifier: Apache-2.0
"""The door to a checkpoint on disk, whatever its kind."""

from pathlib import Path

from tokenlight.base.errors import CheckpointNotFound
from tokenlight.checkpoint.checkpoint import Checkpoint
from tokenlight.checkpoint.gguf import open_gguf


def open_checkpoint(path: Path) -> Checkpoint:
    """Read and check a checkpoint's headers; its tensors are not touched.

    Args:
        path: a GGUF file.

    Raises:
        CheckpointNotFound: there is no such file.
        CheckpointCorrupt: the file is cut short or contradicts itself.
        UnsupportedCheckpoint: the file is sound, but not of a kind that we have.
    """
    if not path.exists():
        raise CheckpointNotFound(f"{path}: there is no such file; give the path of a GGUF file")
    if not path.is_file():
        raise CheckpointNotFound(f"{path}: is not a file; give the path of a GGUF file")
    return open_gguf(path)
