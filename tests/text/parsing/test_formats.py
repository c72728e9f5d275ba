# SPDX-License-Identifier: Apache-2.0
"""The table of formats: complete, consistent, and found by every name that users know."""

import subprocess
import sys

import pytest

from tests.text.parsing.wires import WIRES
from tokenlight.base.errors import ConfigError
from tokenlight.text.parsing.formats import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    get_reasoning_format,
    get_tool_format,
)

# As typed for vLLM and SGLang today.
TOOL_NAMES = {
    "hermes": "hermes",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3_coder": "qwen3_coder",
    "qwen3-coder": "qwen3_coder",
    "qwen3_xml": "qwen3_coder",
    "seed_oss": "seed_oss",
    "llama3_json": "llama3_json",
    "llama3": "llama3_json",
    "llama4_pythonic": "pythonic",
    "pythonic": "pythonic",
    "lfm2": "lfm2",
    "mistral": "mistral",
    "deepseek_v3": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "deepseek_v31": "deepseek_v31",
    "deepseek_v32": "deepseek_v32",
    "kimi_k2": "kimi_k2",
    "glm45": "glm45",
    "glm47": "glm45",
    "minimax": "minimax_m1",
    "minimax_m2": "minimax_m2",
    "minimax-m2": "minimax_m2",
    "openai": "harmony",
    "harmony": "harmony",
    "gpt-oss": "harmony",
    "gpt_oss": "harmony",
    "gemma3": "gemma3",
    "gemma4": "gemma4",
    "functiongemma": "functiongemma",
    "granite": "granite",
    "cohere_command4": "cohere",
    "json": "json",
    "none": "none",
}
REASONING_NAMES = {
    "qwen3": "qwen3",
    "qwen3-thinking": "deepseek_r1",
    "deepseek_r1": "deepseek_r1",
    "deepseek-r1": "deepseek_r1",
    "deepseek_v31": "qwen3",
    "glm45": "glm45",
    "kimi_k2": "kimi_k2",
    "minimax_m2": "minimax_m2",
    "mistral": "mistral",
    "granite": "granite",
    "gemma4": "gemma4",
    "seed_oss": "seed_oss",
    "openai_gptoss": "harmony",
    "gpt-oss": "harmony",
    "none": "none",
}


@pytest.mark.parametrize(("name", "own"), TOOL_NAMES.items())
def test_tool_names(name: str, own: str) -> None:
    assert get_tool_format(name).name == own


@pytest.mark.parametrize(("name", "own"), REASONING_NAMES.items())
def test_reasoning_names(name: str, own: str) -> None:
    assert get_reasoning_format(name).name == own


def test_own_names_are_names() -> None:
    assert all(get_tool_format(name) is format for name, format in TOOL_FORMATS.items())
    assert all(get_reasoning_format(name) is format for name, format in REASONING_FORMATS.items())


@pytest.mark.parametrize("get", [get_tool_format, get_reasoning_format])
def test_an_unknown_name_is_told_the_known_ones(get) -> None:
    with pytest.raises(ConfigError, match=r"'qwne'.*known are .*granite"):
        get("qwne")


def test_every_format_has_a_wire_in_the_tests() -> None:
    assert set(WIRES) == set(TOOL_FORMATS) - {"none"}


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_no_marker_begins_another(name: str) -> None:
    """A marker that begins another could not be told from it before the text goes on."""
    format = TOOL_FORMATS[name]
    for reasoning in REASONING_FORMATS.values():
        markers = {
            *format.openers,
            *format.quiet_openers,
            *format.strays,
            *reasoning.openers,
            *reasoning.closers,
            *reasoning.strays,
        }
        for marker in markers:
            assert not [other for other in markers if other != marker and other.startswith(marker)]
    inside = {*format.openers, *format.closers}
    for marker in inside:
        assert not [other for other in inside if other != marker and other.startswith(marker)]


def test_torch_is_never_imported() -> None:
    source = "import sys, tokenlight.text.parsing; print('torch' in sys.modules)"
    command = [sys.executable, "-c", source]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"
