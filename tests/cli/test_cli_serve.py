# SPDX-License-Identifier: Apache-2.0
"""`tokenlight serve` up to the point where an engine starts."""

import json
import shlex

import pytest

from tokenlight.base.env import Env, read_env
from tokenlight.base.errors import ConfigError
from tokenlight.checkpoint import FetchProgress
from tokenlight.cli import main, serve
from tokenlight.cli.serve import banner
from tokenlight.cli.settings import ProgressLine, engine_config, server_config, with_model_file
from tokenlight.config.flags import FlagParser
from tokenlight.server.run import bind


def typed(*argv: str):
    parser = FlagParser(prog="tokenlight serve")
    serve.add_arguments(parser)
    return parser.parse_strictly(argv)


def env(tmp_path, **variables: str) -> Env:
    return read_env({"TOKENLIGHT_CACHE": str(tmp_path), **variables})


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_default(tmp_path):
    variables = env(
        tmp_path,
        TOKENLIGHT_API_KEY="from-env",
        TOKENLIGHT_NUM_THREADS="3",
        TOKENLIGHT_LOG_LEVEL="debug",
    )
    assert server_config(typed(), variables).api_key == "from-env"
    assert server_config(typed("--api-key", "typed"), variables).api_key == "typed"
    assert server_config(typed(), variables).log_level == "debug"
    assert server_config(typed("--log-level", "error"), variables).log_level == "error"
    assert engine_config(typed(), variables).num_threads == 3
    assert engine_config(typed("--num-threads", "1"), variables).num_threads == 1
    assert server_config(typed(), env(tmp_path)).api_key is None


def test_a_named_model_is_used_as_named(tmp_path):
    config = engine_config(typed("some.gguf"), env(tmp_path))
    assert with_model_file(config, env(tmp_path)).model.model == "some.gguf"


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
def test_the_banner_says_where_what_and_how_to_try(has_key, is_default_model):
    text = banner(
        url="http://127.0.0.1:8000",
        model="SmolLM2",
        context_tokens=8192,
        is_default_model=is_default_model,
        has_key=has_key,
    )
    assert "SmolLM2" in text
    assert "http://127.0.0.1:8000/v1" in text
    assert "8,192 tokens" in text
    assert ("Qwen/Qwen3-8B" in text) == is_default_model
    assert ("call tools or drive agents" in text) == is_default_model
    assert ("$TOKENLIGHT_API_KEY" in text) == has_key
    # The line to copy is one command that a shell reads, with a body that is JSON.
    copied = text[text.index("curl") :].partition("\n  or ")[0]
    words = shlex.split(copied.replace("\\\n", " "))
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    assert json.loads(words[-1])["messages"][0]["role"] == "user"


def test_progress_away_from_a_terminal_is_a_line_per_tenth(capsys):
    line = ProgressLine()
    line.show(FetchProgress(stage="start", text="downloading 93 MB"))
    for done in range(1, 101):
        line.show(FetchProgress(stage="download", text="down", done_bytes=done, total_bytes=100))
    line.show(FetchProgress(stage="done", text="it is at /x"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "downloading 93 MB"
    assert said[1:-1] == [f"down: {tenth} %" for tenth in range(0, 101, 10)]
    assert said[-1] == "it is at /x"


def test_a_bad_variable_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="TOKENLIGHT_NUM_THREADS must be a whole number"):
        env(tmp_path, TOKENLIGHT_NUM_THREADS="many")
