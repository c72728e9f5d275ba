# SPDX-License-Identifier: Apache-2.0
"""The command as typed: help, versions, mistakes, exit codes, and how light it is."""

import os
import re
import resource
import subprocess
import sys

import pytest

import tokenlight
from tokenlight.cli import COMMANDS, EXIT_FAILED, EXIT_USAGE, main


def run(*argv: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tokenlight", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in text


def test_no_command_is_wrong_usage_and_shows_help(capsys):
    assert main([]) == EXIT_USAGE
    assert "usage: tokenlight" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tokenlight {tokenlight.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["serve", "--config", ""], EXIT_USAGE, "--config is empty; give it a value"),
        (["pull", ""], EXIT_USAGE, "MODEL is empty; give it a value"),
        (["plan", ""], EXIT_USAGE, "MODEL is empty; give it a value"),
        (["srve"], EXIT_USAGE, "unknown command 'srve' (did you mean serve?)"),
        (["serve", "--prt", "1"], EXIT_USAGE, "unknown flag --prt (did you mean --port?)"),
        (["serve", "--port", "x"], EXIT_USAGE, "--port must be a whole number, got 'x'"),
        (["serve", "--trust-remote-code"], EXIT_USAGE, "--trust-remote-code is refused"),
        (["serve", "/no/such.gguf", "--port", "0"], EXIT_FAILED, "/no/such.gguf"),
        (["chat", "--url", "http://127.0.0.1:9"], EXIT_FAILED, "does not answer as an OpenAI"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_an_exit_code(argv, code, message, capsys):
    assert main(argv) == code
    said = capsys.readouterr().err.strip()
    assert message in said
    assert said.splitlines()[-1].startswith("tokenlight: ")


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_help_names_no_flag_that_the_command_does_not_take(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = re.sub(r"-\n +", "-", capsys.readouterr().out)  # names are cut at the ends of lines
    lists = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    taken = {name for names in lists for name in re.findall(r"--[a-z][a-z-]*", names)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert "--load-format" in taken
    assert named <= taken


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert f"tokenlight {command}" in capsys.readouterr().out


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_light(tmp_path):
    """0.15 s of CPU, or eight interpreters' starts where those are slow; with compiled modules.

    The least of several: this machine may be busy with other things.
    """
    code = (
        "import sys; from tokenlight.cli import main; main(['--help']); "
        "heavy = {'torch', 'numpy', 'starlette', 'uvicorn', 'httpx', 'tokenizers', 'zmq'}; "
        "found = heavy & set(sys.modules); assert not found, found"
    )
    # Empty: not set. An installed package has its bytecode, wherever this suite may write none.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def cost_s(code: str) -> float:
        before_s = children_cpu_s()
        command = [sys.executable, "-c", code]
        subprocess.run(command, check=True, capture_output=True, env=environ)
        return children_cpu_s() - before_s

    starts_s = [cost_s("pass") for _ in range(5)]
    helps_s = [cost_s(code) for _ in range(5)]
    assert min(helps_s) < max(0.15, 8 * min(starts_s))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_crash(unbuffered):
    """Python writes when its buffer is flushed at the end, or at every line: PYTHONUNBUFFERED."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tokenlight", "env"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(60) == EXIT_FAILED


def test_env_says_what_a_bug_report_needs_and_no_key(monkeypatch, capsys):
    monkeypatch.setenv("TOKENLIGHT_API_KEY", "very-secret")
    assert main(["env"]) == 0
    text = capsys.readouterr().out
    for wanted in ("tokenlight", "python", "platform", "cpu", "memory", "torch", "starlette"):
        assert f"\n{wanted}" in f"\n{text}"
    assert tokenlight.__version__ in text
    assert "very-secret" not in text
    assert "env api_key      set" in text


def test_the_module_runs_as_the_command_does():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tokenlight {tokenlight.__version__}\n")
