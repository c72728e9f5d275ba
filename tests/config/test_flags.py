# SPDX-License-Identifier: Apache-2.0
"""Flags come from the dataclasses: names, help, types, defaults and errors."""

import re
from pathlib import Path

import pytest

from tokenlight import config
from tokenlight.base.errors import ConfigError
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.flags import REFUSED, FlagParser, add_flags, build, flags_of, given


def parse(*argv: str) -> tuple[EngineConfig, ServerConfig]:
    parser = FlagParser(prog="tokenlight serve")
    add_flags(parser, EngineConfig, ServerConfig)
    typed = parser.parse_strictly(argv)
    return (
        build(EngineConfig, given(typed, EngineConfig)),
        build(ServerConfig, given(typed, ServerConfig)),
    )


def test_nothing_typed_gives_the_defaults_of_the_dataclasses():
    assert parse() == (EngineConfig(), ServerConfig())


def test_each_kind_of_value_lands_in_its_nested_field():
    engine, server = parse(
        "some.gguf",
        "--block-size",
        "32",
        "--dtype=float32",
        "--port",
        "0",
        "--drain-timeout",
        "1.5",
    )
    assert engine.model.model == "some.gguf"
    assert engine.model.dtype == "float32"
    assert engine.cache.block_tokens == 32
    assert engine.scheduler.max_step_tokens == EngineConfig().scheduler.max_step_tokens
    assert (server.port, server.drain_s) == (0, 1.5)


@pytest.mark.parametrize(
    ("typed", "value"),
    [("--enable-prefix-caching", "exact"), ("--no-enable-prefix-caching", "off")],
)
def test_a_boolean_flag_has_both_forms(typed, value):
    assert parse(typed)[0].cache.prefix_reuse == value


@pytest.mark.parametrize(
    ("typed", "value"), [("--enforce-eager", "off"), ("--no-enforce-eager", "on")]
)
def test_enforcing_eager_steps_turns_graphs_off(typed, value):
    assert parse(typed)[0].step_graphs == value


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("--enable-deterministic-inference", "on"),
        ("--no-enable-deterministic-inference", "off"),
    ],
)
def test_deterministic_inference_asks_for_row_invariance(typed, value):
    assert parse(typed)[0].row_invariance == value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--max-model-length", "4"],
            r"unknown flag --max-model-length \(did you mean --max-model-len\?\)",
        ),
        (["--max-model", "4"], r"unknown flag --max-model \(did you mean --max-model-len\?\)"),
        (["--quux"], r"unknown flag --quux; see tokenlight serve --help"),
        (["a.gguf", "b.gguf"], r"unexpected argument 'b.gguf'"),
        (["--port", "http"], r"--port must be a whole number, got 'http'"),
        (["--port", "70000"], r"--port must be from 0 to 65535, got 70000"),
        (["--drain-timeout", "soon"], r"--drain-timeout must be a finite number, got 'soon'"),
        (["--client-timeout", "nan"], r"--client-timeout must be a finite number, got 'nan'"),
        (["--stall-timeout", "inf"], r"--stall-timeout must be a finite number, got 'inf'"),
        (["m\udcff.gguf"], r"MODEL 'm\\udcff.gguf' is not text in this locale \(utf-8\); set LC_"),
        ([""], r"MODEL is empty; give it a value, or leave it out"),
        (["--api-key", ""], r"--api-key is empty; give it a value, or leave it out"),
        (["--served-model-name", "one", " "], r"--served-model-name is empty"),
        (["--tensor-parallel-size", "0"], r"--tensor-parallel-size must be from 1 to 4096, got 0"),
        (["--data-parallel-size", "99999999999"], r"must be from 1 to 4096, got 99999999999"),
        (["--tensor-parallel-size", "4096", "--data-parallel-size", "2"], r"8192 ranks are asked"),
        (["--num-threads", "0"], r"--num-threads must be from 1 to 1024, got 0"),
        (["--num-threads", "100000"], r"--num-threads must be from 1 to 1024, got 100000"),
        (["--max-num-seqs", "100000000"], r"--max-num-seqs must be from 1 to 65536, got 1000"),
        (["--max-num-batched-tokens", "100000000"], r"must be from 1 to 1048576, got 100000000"),
        (["--dtype", "int3"], r"--dtype must be auto, float32, float16 or bfloat16, got 'int3'"),
        (["--port"], r"--port"),
        (["--gpu-memory-utilization", "1.5"], r"above 0 and at most 1, got 1.5"),
        (["--cpu-activation-bits", "4"], r"--cpu-activation-bits must be 8 or 15, got 4"),
        (["--overlap-steps", "3"], r"--overlap-steps must be 0, 1 or 2, got 3"),
        (["--trust-remote-code"], r"--trust-remote-code is refused: code from a checkpoint"),
    ],
)
def test_a_wrong_flag_is_a_config_error_that_says_what_to_do(argv, message):
    with pytest.raises(ConfigError, match=message):
        parse(*argv)


def test_every_flag_has_help_and_a_name_nobody_else_has():
    flags = [*flags_of(EngineConfig), *flags_of(ServerConfig)]
    assert all(len(flag.help) > 10 for flag in flags)
    names = [flag.shown for flag in flags]
    assert len(set(names)) == len(names)


def test_every_config_field_is_reachable_by_a_flag():
    source = "".join(
        Path(config.__file__).with_name(f"{name}.py").read_text()
        for name in ("engine", "parallel", "server")
    )
    declared = len(re.findall(r"metadata=flag\(", source))
    assert declared == len([*flags_of(EngineConfig), *flags_of(ServerConfig)])


def test_help_shows_each_flag_once(capsys):
    parser = FlagParser(prog="tokenlight serve")
    add_flags(parser, EngineConfig, ServerConfig)
    text = parser.format_help()
    for flag in flags_of(EngineConfig):
        if flag.name:
            assert len(re.findall(rf"^  {flag.name}\b", text, re.M)) == 1
    for name in REFUSED:
        assert name not in text


def test_help_tells_how_a_switch_is_turned_off_and_how_it_stands():
    parser = FlagParser(prog="tokenlight serve")
    add_flags(parser, EngineConfig)
    text = " ".join(parser.format_help().split())
    switches = [flag for flag in flags_of(EngineConfig) if flag.on is not None]
    assert {flag.shown_default for flag in switches} == {"on", "off"}
    for flag in switches:
        off = f"--no-{flag.names[0].removeprefix('--')}"
        assert f"{flag.names[0]}, {off} {flag.help} Default: {flag.shown_default}." in text
