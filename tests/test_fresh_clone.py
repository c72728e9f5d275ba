# SPDX-License-Identifier: Apache-2.0
"""A newcomer's first minutes: the README's two commands in a fresh clone, an empty environment."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SETUP_S = 1200.0

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's HEAD, cloned; nothing that is ignored or uncommitted comes along."""
    folder = tmp_path_factory.mktemp("newcomer") / "tokenlight"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment with an empty home: no caches, no virtual environment, no settings."""
    python_dir = str(Path(sys.base_prefix) / "bin")
    return {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PATH": f"{python_dir}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_RETRIES": "10",  # an index that falters for a minute is no fault of ours
    }


def first_command(pattern: str) -> str:
    """The README's first line that matches; the test runs what the page says."""
    found = re.search(pattern, README, re.MULTILINE)
    assert found, pattern
    return found.group(0)


def wait_for_line(lines: Iterator[str], wanted: str) -> list[str]:
    seen = []
    for line in lines:
        seen.append(line)
        if wanted in line:
            return seen
    raise AssertionError("the server ended; it said:\n" + "".join(seen))


def test_serve_answers_the_readme_curl(clone: Path, environment: dict[str, str]) -> None:
    assert first_command(r"^make serve$") == "make serve"
    command = ["make", "serve", "ARGS=--port 0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    start_s = time.monotonic()
    server = subprocess.Popen(
        command, cwd=clone, env=environment, start_new_session=True, **pipes
    )  # fmt: skip
    try:
        assert server.stdout
        said = wait_for_line(iter(server.stdout.readline, ""), "curl ")
        assert time.monotonic() - start_s < SETUP_S
        before = "".join(said)
        assert "to download" in before, "setup must say how much it downloads"
        assert "98" in before, "the default model's size must be said"
        port = re.search(r"^  url +http://127\.0\.0\.1(:\d+)/", before, re.MULTILINE)[1]
        curl = first_command(r"^curl http[\s\S]*?\}'$").replace(":8000", port)
        answer = subprocess.run(
            shlex.split(curl), env=environment, capture_output=True, text=True, timeout=120
        )
        body = json.loads(answer.stdout)
        assert "Paris" in body["choices"][0]["message"]["content"]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)


def test_second_setup_is_offline_and_quick(clone: Path, environment: dict[str, str]) -> None:
    offline = {**environment, "PIP_NO_INDEX": "1"}
    start_s = time.monotonic()
    subprocess.run(["make", "setup"], cwd=clone, env=offline, check=True, timeout=60)
    assert time.monotonic() - start_s < 10


def make_test(clone: Path, environment: dict[str, str], arguments: str) -> str:
    command = ["make", "test", f"ARGS={arguments}"]
    result = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    return result.stdout


def test_make_test_finds_all_it_needs(clone: Path, environment: dict[str, str]) -> None:
    """Each of the suite's modules imports: nothing is missing that was not committed."""
    assert first_command(r"`make test`")
    said = make_test(clone, environment, "--collect-only")
    assert int(re.search(r"(\d+)/\d+ tests collected", said)[1]) > 5000


def test_make_test_passes(clone: Path, environment: dict[str, str]) -> None:
    """Rooms from checkpoint to HTTP; CI has run all of them, in a clone of its own."""
    rooms = "base checkpoint cli config control engine kv wire"
    said = make_test(clone, environment, " ".join(f"tests/{room}" for room in rooms.split()))
    assert int(re.search(r"(\d+) passed", said)[1]) > 500
