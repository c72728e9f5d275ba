# SPDX-License-Identifier: Apache-2.0
"""From what a user types to files on disk."""

from pathlib import Path

from tokenlight.base.errors import CheckpointNotFound
from tokenlight.checkpoint.fetch.default_model import fetch_default_model
from tokenlight.checkpoint.fetch.hub import fetch_hub_model, is_hub_id
from tokenlight.checkpoint.fetch.progress import Progress, no_progress


def locate_model(
    model: str,
    cache_dir: Path,
    progress: Progress = no_progress,
    *,
    revision: str | None = None,
) -> Path:
    """The path of a model's file or folder, fetched where it has to be.

    Args:
        model: a path, a Hub id (`owner/name`, `owner/name:Q4_K_M`), or empty for the default model.
            A path that exists wins over a Hub id of the same spelling.
        cache_dir: where the default model is kept; Hub models have their own cache.
        progress: hears of downloads.
        revision: of a Hub model.

    Raises:
        CheckpointNotFound: it is neither there nor on the Hub.
        DownloadFailed: it could not be fetched.
    """
    if not model:
        return fetch_default_model(cache_dir, progress)
    path = find_local_model(model)
    if path is not None:
        return path
    if is_hub_id(model) and not model.startswith("."):
        return fetch_hub_model(model, progress, revision=revision)
    raise CheckpointNotFound(
        f"{model}: there is no such file or folder, and it is not a Hub id (owner/name); "
        f"give a GGUF file, a folder with config.json and safetensors, or a Hub id"
    )


def find_local_model(model: str) -> Path | None:
    """The file or folder of that path; None where there is none.

    Raises:
        CheckpointNotFound: the system does not tell: a folder is closed to us, a name too long.
    """
    try:
        path = Path(model).expanduser()
        return path if path.exists() else None
    except RuntimeError:  # ~name, and nobody has that name
        return None
    except OSError as fault:
        raise CheckpointNotFound(f"{model}: cannot be looked at: {fault.strerror}") from fault
