# SPDX-License-Identifier: Apache-2.0
"""Models of the Hugging Face Hub, through its own client: its cache, token, mirror, offline switch.

`owner/name` is a folder of safetensors; `owner/name:Q4_K_M` is the GGUF file (or its parts) of that
quantization in a repository of such files. Only what a model is made of is downloaded.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tokenlight.base.errors import CheckpointNotFound, DownloadFailed
from tokenlight.checkpoint.fetch.progress import FetchProgress, Progress, megabytes, no_progress
from tokenlight.checkpoint.gguf.file import PART
from tokenlight.checkpoint.huggingface.folder import TOKENIZER_FILES

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB_ID = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(:(?P<quantization>[\w.-]+))?")
FOLDER_PATTERNS = (
    "config.json", "model.safetensors", "model-*.safetensors", "model.safetensors-*.safetensors",
    "model.safetensors.index.json", *TOKENIZER_FILES,
)  # fmt: skip
_FILES = (".gguf", ".safetensors")
ADVICE = (
    "check the name and the network; private and gated models need HF_TOKEN (or `hf auth login`) "
    "and their licence accepted on huggingface.co"
)


def is_hub_id(model: str) -> bool:
    """Whether `model` has the form of a Hub id, with or without a quantization.

    `models/some.gguf` has not: whoever mistyped a file's name is not to hear of the network.
    """
    return HUB_ID.fullmatch(model) is not None and not model.lower().endswith(_FILES)


def fetch_hub_model(
    model: str,
    progress: Progress = no_progress,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
    endpoint: str | None = None,
) -> Path:
    """Return the model's folder or GGUF file in the Hub's cache; download what is not there yet.

    Args:
        model: `owner/name` or `owner/name:QUANTIZATION`.
        progress: hears how much will be downloaded; the client shows bars of its own.
        revision: a branch, tag or commit; default: main.
        cache_dir: default: the client's own (HF_HOME).
        endpoint: default: the client's own (HF_ENDPOINT).

    Raises:
        CheckpointNotFound: there is no such model, or no such file in it.
        DownloadFailed: the Hub cannot be reached or refuses, and the cache does not have it.
    """
    from huggingface_hub import HfApi  # heavy, and needed for Hub ids only

    match = HUB_ID.fullmatch(model)
    if match is None:
        raise CheckpointNotFound(f"{model!r} is not a Hub id; it must be like owner/name")
    repository, quantization = match["repository"], match["quantization"]
    patterns = _gguf_patterns(quantization) if quantization else list(FOLDER_PATTERNS)
    api = HfApi(endpoint=endpoint, library_name="tokenlight")
    folder = _download(api, repository, revision, cache_dir, patterns, progress)
    if quantization:
        return _gguf_file(folder, patterns, model)
    _check_config(folder, repository)
    return folder


def fetch_hub_config(
    repository: str,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
    endpoint: str | None = None,
) -> Path:
    """Return the model's folder in the Hub's cache, with its config.json and perhaps no more.

    Args:
        repository: `owner/name`.
        revision: a branch, tag or commit; default: main.
        cache_dir: default: the client's own (HF_HOME).
        endpoint: default: the client's own (HF_ENDPOINT).

    Raises:
        CheckpointNotFound: there is no such model, or it has no config.json.
        DownloadFailed: the Hub cannot be reached or refuses, and the cache does not have it.
    """
    from huggingface_hub import HfApi  # heavy, and needed for Hub ids only

    api = HfApi(endpoint=endpoint, library_name="tokenlight")
    folder = _download(api, repository, revision, cache_dir, ["config.json"], no_progress)
    _check_config(folder, repository)
    return folder


def find_hub_gguf(
    model: str, *, revision: str | None = None, cache_dir: Path | None = None
) -> Path | None:
    """The file of `owner/name:QUANTIZATION` where an earlier fetch left it; None: nowhere."""
    from huggingface_hub import HfApi  # heavy, and needed for Hub ids only
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository, _, quantization = model.partition(":")
    patterns = _gguf_patterns(quantization)
    try:
        folder = HfApi().snapshot_download(
            repository, revision=revision, cache_dir=cache_dir, local_files_only=True
        )
        return _gguf_file(Path(folder), patterns, model)
    except (LocalEntryNotFoundError, CheckpointNotFound):
        return None


def _check_config(folder: Path, repository: str) -> None:
    if not (folder / "config.json").is_file():
        raise CheckpointNotFound(
            f"{repository} has no config.json, so it is not a model of safetensors; of a "
            f"repository of GGUF files, name the quantization as well: {repository}:Q4_K_M"
        )


def _download(
    api: HfApi,
    repository: str,
    revision: str | None,
    cache_dir: Path | None,
    patterns: list[str],
    progress: Progress,
) -> Path:
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        _announce(api, repository, revision, cache_dir, patterns, progress)
        found = api.snapshot_download(
            repository, revision=revision, cache_dir=cache_dir, allow_patterns=patterns
        )
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        text = f"interrupted; the files of {repository} that are whole stay in the Hub's cache"
        progress(FetchProgress(stage="stop", text=text))
        raise
    except GatedRepoError as fault:
        raise DownloadFailed(f"the Hub refuses {repository}, which is gated; {ADVICE}") from fault
    except RepositoryNotFoundError as fault:
        raise CheckpointNotFound(f"the Hub has no model {repository}; {ADVICE}") from fault
    except RevisionNotFoundError as fault:
        raise CheckpointNotFound(f"{repository} has no revision {revision!r}") from fault
    except HFValidationError as fault:
        raise CheckpointNotFound(f"{repository!r} is not a Hub id: {fault}") from fault
    except _network_errors() as fault:
        reason = str(fault).strip().splitlines() or [type(fault).__name__]
        raise DownloadFailed(
            f"{repository} is not whole in the cache and could not be downloaded "
            f"({reason[0]}); {ADVICE}"
        ) from fault
    return Path(found)


def _network_errors() -> tuple[type[Exception], ...]:
    # HTTPError is of httpx or httpx2, whichever this version of the client is built on.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    return (HTTPError, OSError)


def _announce(
    api: HfApi,
    repository: str,
    revision: str | None,
    cache_dir: Path | None,
    patterns: list[str],
    progress: Progress,
) -> None:
    """Say how much will be downloaded, when the Hub can be asked."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        known = api.model_info(repository, revision=revision, files_metadata=True)
    except (RepositoryNotFoundError, RevisionNotFoundError):
        raise
    except _network_errors():  # offline: what the cache has will do
        return
    num_bytes = 0
    for sibling in known.siblings or []:
        name = sibling.rfilename
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            cached = try_to_load_from_cache(repository, name, cache_dir, revision=known.sha)
            num_bytes += 0 if isinstance(cached, str) else sibling.size or 0
    if num_bytes:
        text = f"downloading {repository}: {megabytes(num_bytes)} MB from the Hugging Face Hub"
        progress(FetchProgress(stage="start", text=text, total_bytes=num_bytes))


def _gguf_patterns(quantization: str) -> list[str]:
    """Names are matched with their case, and both cases are in use."""
    return [
        f"*{spelled}{end}"
        for spelled in dict.fromkeys((quantization.upper(), quantization.lower(), quantization))
        for end in (".gguf", "-*-of-*.gguf")
    ]


def _gguf_file(folder: Path, patterns: list[str], model: str) -> Path:
    """The one model among the snapshot's GGUF files that match; of a split one, its first part."""
    names = [str(each.relative_to(folder)) for each in folder.rglob("*.gguf")]
    matching = sorted(n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns))
    first = [
        n
        for n in matching
        if (part := PART.fullmatch(Path(n).name)) is None or part["number"] == "00001"
    ]
    if len(first) != 1:
        listed = ", ".join(first) or "none"
        raise CheckpointNotFound(
            f"{model}: one GGUF file must end with that quantization, found: {listed}"
        )
    return folder / first[0]
