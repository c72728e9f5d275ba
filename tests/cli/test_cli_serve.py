# SPDX-License-Identifier: Apache-2.0
"""`tokenlight serve` up to the point where an engine starts."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight.base.env import Env, read_env
from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import FetchProgress
from tokenlight.cli import main, serve
from tokenlight.cli.serve import banner, command_here
from tokenlight.cli.settings import (
    ProgressLine,
    engine_config,
    from_file,
    server_config,
    with_model_files,
)
from tokenlight.config.flags import FlagParser
from tokenlight.server.run import bind


def typed(*argv: str):
    parser = FlagParser(prog="tokenlight serve")
    serve.add_arguments(parser)
    return parser.parse_strictly(argv)


def env(tmp_path, **variables: str) -> Env:
    return read_env({"TOKENLIGHT_CACHE": str(tmp_path), **variables})


def configs(variables: Env, *argv: str):
    args = typed(*argv)
    file = from_file(args)
    return server_config(args, variables, file), engine_config(args, variables, file)


def test_a_home_that_nobody_has_is_named(monkeypatch):
    with pytest.raises(ConfigError, match="TOKENLIGHT_CACHE is ~nobody-of-that-name"):
        read_env({"TOKENLIGHT_CACHE": "~nobody-of-that-name/x"})

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigError, match="set TOKENLIGHT_CACHE"):
        read_env({})
    assert read_env({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tokenlight")


def test_a_flag_wins_over_a_file_a_file_over_a_variable_and_a_variable_over_the_default(tmp_path):
    variables = env(
        tmp_path,
        TOKENLIGHT_API_KEY="from-env",
        TOKENLIGHT_NUM_THREADS="3",
        TOKENLIGHT_LOG_LEVEL="debug",
    )
    server, engine = configs(variables)
    assert (server.api_key, server.log_level, engine.num_threads) == ("from-env", "debug", 3)
    assert configs(env(tmp_path))[0].api_key is None

    file = tmp_path / "flags.yaml"
    file.write_text("api-key: from-file\nlog_level: error\nnum-threads: 2\nmodel: file.gguf\n")
    server, engine = configs(variables, "--config", str(file))
    assert (server.api_key, server.log_level, engine.num_threads) == ("from-file", "error", 2)
    assert engine.model.model == "file.gguf"

    flags = ["typed.gguf", "--api-key", "typed", "--log-level", "info", "--num-threads", "1"]
    server, engine = configs(variables, "--config", str(file), *flags)
    assert (server.api_key, server.log_level, engine.num_threads) == ("typed", "info", 1)
    assert engine.model.model == "typed.gguf"


def test_a_model_that_is_there_is_used_as_named(tmp_path):
    path = tmp_path / "some.gguf"
    path.touch()
    _, config = configs(env(tmp_path), str(path))
    assert with_model_files(config, env(tmp_path)) == config


def test_pull_of_a_model_that_is_there_says_where_and_what(tmp_path, capsys):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    assert main(["pull", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(path)


def test_pull_of_what_is_no_model_is_an_error(tmp_path, capsys):
    assert main(["pull", str(tmp_path / "nothing.gguf")]) == 1
    assert "nothing.gguf" in capsys.readouterr().err


def test_a_port_in_use_is_told_before_any_model_is_looked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOKENLIGHT_CACHE", str(tmp_path))
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "/no/such.gguf", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} on 127.0.0.1 is in use" in said
    assert "no/such" not in said


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("is_default_model", [True, False])
@pytest.mark.parametrize("calls_tools", [True, False])
def test_the_banner_says_where_what_and_how_to_try(has_key, is_default_model, calls_tools):
    text = banner(
        url="http://127.0.0.1:8000",
        model="SmolLM2",
        context_tokens=8192,
        is_default_model=is_default_model,
        calls_tools=calls_tools,
        has_key=has_key,
        command="bin/tokenlight",
    )
    assert "SmolLM2" in text
    assert text.count("bin/tokenlight") == 1 + is_default_model
    assert "bin/tokenlight chat --url http://127.0.0.1:8000\n" in text
    assert "http://127.0.0.1:8000/v1" in text
    assert "8,192 tokens" in text
    assert ("can      chat, call tools and continue text" in text) == calls_tools
    assert ("bin/tokenlight serve Qwen/Qwen3-8B   (16 GB)\n" in text) == is_default_model
    assert ("call tools or drive agents" in text) == is_default_model
    assert ("$TOKENLIGHT_API_KEY" in text) == has_key
    # The line to copy is one command that a shell reads, with a body that is JSON.
    copied = text[text.index("curl") :].partition("\n  or ")[0]
    words = shlex.split(copied.replace("\\\n", " "))
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    assert json.loads(words[-1])["messages"][0]["role"] == "user"


def test_the_banner_names_a_command_that_the_next_shell_finds(monkeypatch, tmp_path):
    """`make serve` starts it from a folder that is on nobody's PATH."""
    there, elsewhere = tmp_path / "an env" / "bin", tmp_path / "usr"
    there.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(there / "python"))
    monkeypatch.setenv("PATH", str(elsewhere))
    assert shlex.split(command_here()) == [str(there / "python"), "-m", "tokenlight"]
    (there / "tokenlight").touch(mode=0o755)
    assert shlex.split(command_here()) == [str(there / "tokenlight")]
    # An environment that is active in this shell is not in the next one.
    monkeypatch.setenv("PATH", f"{there}:{elsewhere}")
    monkeypatch.setattr(sys, "prefix", str(there.parent))
    assert sys.prefix != sys.base_prefix
    assert shlex.split(command_here()) == [str(there / "tokenlight")]
    # The machine's own Python, and an environment with a link from a folder on PATH.
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert command_here() == "tokenlight"
    monkeypatch.setattr(sys, "prefix", str(there.parent))
    elsewhere.mkdir()
    (elsewhere / "tokenlight").symlink_to(there / "tokenlight")
    monkeypatch.setenv("PATH", f"{elsewhere}:{there}")
    assert command_here() == "tokenlight"


def test_the_banner_does_not_name_another_installation(monkeypatch, tmp_path):
    there, other = tmp_path / "an env" / "bin", tmp_path / "other"
    for folder in (there, other):
        folder.mkdir(parents=True)
        (folder / "tokenlight").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(there / "python"))
    monkeypatch.setenv("PATH", f"{other}:{there}")
    assert shlex.split(command_here()) == [str(there / "tokenlight")]


def test_progress_away_from_a_terminal_is_a_line_per_tenth(capsys):
    line = ProgressLine()
    line.show(FetchProgress(stage="start", text="downloading 93 MB"))
    for done in (0, 0, *range(101)):  # at first, asked again before anything came
        line.show(FetchProgress(stage="download", text="down", done_bytes=done, total_bytes=100))
    line.show(FetchProgress(stage="done", text="it is at /x"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "downloading 93 MB"
    assert said[1:-1] == [f"down: {tenth} %" for tenth in range(0, 101, 10)]
    assert said[-1] == "it is at /x"


def test_a_bad_variable_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="TOKENLIGHT_NUM_THREADS must be a whole number"):
        env(tmp_path, TOKENLIGHT_NUM_THREADS="many")


@pytest.mark.parametrize(
    ("flags", "is_warned"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--api-key", "k"], False),
        ([], False),
    ],
)
def test_an_open_door_to_the_network_is_warned_of(tmp_path, flags, is_warned, caplog):
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0", *flags]) == 1
    assert ("open_to_the_network" in caplog.text) == is_warned


def test_a_context_shorter_than_asked_is_told(caplog):
    for asked, served in ((None, 512), (512, 512), (256, 256)):
        serve.tell_lowered(asked, served)
    assert not caplog.records
    serve.tell_lowered(32768, 8192)
    assert "max_model_len_lowered asked=32768 served=8192" in caplog.text
