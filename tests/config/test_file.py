# SPDX-License-Identifier: Apache-2.0
"""A YAML file of flags is checked as the command line is."""

import pytest

from tokenlight.base.errors import ConfigError
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.file import read_file
from tokenlight.config.flags import build, flags_of


def read(tmp_path, text: str | bytes) -> dict[str, object]:
    path = tmp_path / "flags.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path, EngineConfig, ServerConfig)


def test_names_are_those_of_the_flags_with_either_dash(tmp_path):
    text = "model: m.gguf\nblock-size: 32\nmax_num_seqs: 4\ndrain-timeout: 2\n"
    assert read(tmp_path, text) == {
        "model.model": "m.gguf",
        "cache.block_tokens": 32,
        "scheduler.max_num_requests": 4,
        "drain_s": 2.0,
    }


@pytest.mark.parametrize(("value", "stored"), [("true", "exact"), ("false", "off")])
def test_a_boolean_flag_is_true_or_false(tmp_path, value, stored):
    values = read(tmp_path, f"enable-prefix-caching: {value}\n")
    assert build(EngineConfig, values).cache.prefix_reuse == stored


@pytest.mark.parametrize("value", ["[one, two]", "\n  - one\n  - two"])
def test_a_list_is_several_values(tmp_path, value):
    values = read(tmp_path, f"served-model-name: {value}\n")
    assert values["served_model_names"] == ("one", "two")
    assert read(tmp_path, "served-model-name: one\n")["served_model_names"] == ("one",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "port: null\n"])
def test_nothing_said_is_nothing_set(tmp_path, text):
    assert read(tmp_path, text) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-model-length: 4", r"unknown name max-model-length \(did you mean max-model-len\?\)"),
        ("port: http", "--port must be a whole number, got 'http'"),
        ("port: 1.5", "--port must be a whole number, got '1.5'"),
        ("port: true", "port must be one value, got True"),
        ("max-num-seqs: 2\nmax_num_seqs: 3", "max-num-seqs is there twice"),
        ("api-key: ''", "--api-key is empty"),
        ("model: ''", "MODEL is empty"),
        ("client-timeout: .nan", "--client-timeout must be a finite number"),
        ("port: [1, 2]", "port must be one value"),
        ("dtype: int3", "--dtype must be auto"),
        ("enable-prefix-caching: maybe", "enable-prefix-caching must be true or false"),
        ("trust-remote-code: true", "trust-remote-code is refused"),
        ("- port", "must be a mapping"),
        ("port: [", "is not YAML"),
        (b"\xff\xfe\xfd", "is not YAML"),
        ("port: !!python/object/apply:os.getpid []", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as refused:
        read(tmp_path, text)
    assert "flags.yaml" in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml: No such file"):
        read_file(tmp_path / "nothing.yaml", ServerConfig)


def test_every_flag_can_be_in_a_file(tmp_path):
    for config in (EngineConfig, ServerConfig):
        for flag in flags_of(config):
            name = (flag.name or flag.positional).lstrip("-").lower()
            value = "true" if flag.on else flag.choices[0] if flag.choices else "1"
            assert flag.path in read(tmp_path, f"{name}: {value}\n")
