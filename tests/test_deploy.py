# SPDX-License-Identifier: Apache-2.0
"""What `deploy/` starts: a server of this version, that may write where it must."""

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tokenlight.base.env import Env, read_env
from tokenlight.cli import serve
from tokenlight.config import ServerConfig
from tokenlight.config.flags import FlagParser, build, given

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def docker_instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def of_docker(word: str) -> list[str]:
    return [rest for each, rest in docker_instructions() if each == word]


def unit() -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(DEPLOY / "tokenlight.service")
    return parsed


def variables(assignments: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(assignments))


def served_by(command: list[str]) -> ServerConfig:
    """The server that a command line makes; a flag that is none is refused."""
    assert Path(command[0]).name == "tokenlight"
    assert command[1] == "serve"
    parser = FlagParser(prog="tokenlight serve")
    serve.add_arguments(parser)
    return build(ServerConfig, given(parser.parse_strictly(command[2:]), ServerConfig))


def test_the_image_serves_where_its_port_is_exposed() -> None:
    config = served_by(json.loads(of_docker("ENTRYPOINT")[0]))
    assert config.host == "0.0.0.0"
    assert [int(port) for port in of_docker("EXPOSE")] == [config.port]
    health = of_docker("HEALTHCHECK")[0]
    assert f"127.0.0.1:{config.port}/health" in health


def test_the_healthcheck_is_python() -> None:
    command = json.loads(of_docker("HEALTHCHECK")[0].partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "healthcheck", "exec")


def test_stages_are_copied_from_by_their_names() -> None:
    stages = [rest.partition(" AS ")[2] for rest in of_docker("FROM")]
    sources = re.findall(r"--from=(\S+)", str(of_docker("COPY")))
    assert sources
    assert set(sources) <= set(stages)


def test_the_images_user_owns_the_volume() -> None:
    volume = of_docker("VOLUME")[0]
    user = of_docker("USER")[0]
    made = next(run for run in of_docker("RUN") if "useradd" in run)
    assert re.search(rf"install --directory --owner {user} .*{volume}(\s|$)", made)
    order = [word for word, _ in docker_instructions()]
    assert order.index("USER") < order.index("VOLUME")


@pytest.mark.parametrize(
    ("assignments", "writable"),
    [
        (of_docker("ENV")[0], of_docker("VOLUME")[0]),
        (unit()["Service"]["Environment"], "/var/cache/" + unit()["Service"]["CacheDirectory"]),
    ],
    ids=["Dockerfile", "systemd"],
)
def test_models_are_fetched_to_where_one_may_write(assignments: str, writable: str) -> None:
    given_variables = variables(assignments)
    ours: Env = read_env(given_variables)
    assert str(ours.cache_dir).startswith(writable)
    assert given_variables["HF_HOME"].startswith(writable)


def test_the_unit_starts_a_server_and_outwaits_its_drain() -> None:
    service: Any = unit()["Service"]
    config = served_by(shlex.split(service["ExecStart"]))
    assert config.host == "127.0.0.1", "the unit sets no key"
    assert int(service["TimeoutStopSec"]) > config.drain_s


def test_what_git_ignores_is_not_copied_into_the_image() -> None:
    kept_out = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in (ROOT / ".gitignore").read_text().split():
        name = line.strip("/")
        assert any(
            name in (each, each.removeprefix("**/")) or each == ".venv*" for each in kept_out
        ), name
