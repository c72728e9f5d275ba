# SPDX-License-Identifier: Apache-2.0
"""The project's pages: their links lead somewhere, and they do not speak of what is not there."""

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
DOCKER_WORDS = {
    "FROM", "RUN", "WORKDIR", "COPY", "ARG", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK",
    "STOPSIGNAL", "ENTRYPOINT", "CMD",
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z][a-z0-9-]*)", page.read_text()))
    assert named <= make_targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_and_tests_to_run_exist(page: Path) -> None:
    text = page.read_text()
    for module in re.findall(r"python -m ((?:benchmarks|tokenlight|tests)(?:\.\w+)*)", text):
        path = ROOT / module.replace(".", "/")
        there = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        assert there, f"{page.name} runs {module}"
    for path in re.findall(r"(?<![\w/])(?:tests|scripts)/[\w/]+\.(?:py|sh|md)\b", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def docker_instructions() -> list[tuple[str, str]]:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def test_dockerfile_is_one_and_names_what_exists() -> None:
    instructions = docker_instructions()
    assert instructions[0][0] == "FROM"
    assert {word for word, _ in instructions} <= DOCKER_WORDS
    serves = next(rest for word, rest in instructions if word == "ENTRYPOINT")
    assert '"tokenlight", "serve"' in serves
    assert "constraints.txt" in str(instructions)
    assert (ROOT / "constraints.txt").exists()


def test_systemd_unit_starts_the_server() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "tokenlight.service")
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    assert "tokenlight serve" in unit["Service"]["ExecStart"]
    stop_s = int(unit["Service"]["TimeoutStopSec"])
    assert stop_s > 30, "longer than the default --drain-timeout, or the drain is cut off"
