# SPDX-License-Identifier: Apache-2.0
"""The wire formats, one file per family of models, and the names by which users know them."""

from tokenlight.base.errors import ConfigError
from tokenlight.text.parsing.format import ReasoningFormat, ToolFormat
from tokenlight.text.parsing.formats import reasoning
from tokenlight.text.parsing.formats.cohere import COHERE
from tokenlight.text.parsing.formats.deepseek import DEEPSEEK_V3, DEEPSEEK_V31, DEEPSEEK_V32
from tokenlight.text.parsing.formats.gemma import FUNCTION_GEMMA, GEMMA3, GEMMA4
from tokenlight.text.parsing.formats.generic import JSON, NONE
from tokenlight.text.parsing.formats.glm import GLM45
from tokenlight.text.parsing.formats.granite import GRANITE
from tokenlight.text.parsing.formats.harmony import HARMONY
from tokenlight.text.parsing.formats.hermes import HERMES
from tokenlight.text.parsing.formats.kimi import KIMI_K2
from tokenlight.text.parsing.formats.llama import LFM2, LLAMA3_JSON, PYTHONIC
from tokenlight.text.parsing.formats.minimax import MINIMAX_M1, MINIMAX_M2
from tokenlight.text.parsing.formats.mistral import MISTRAL
from tokenlight.text.parsing.formats.nemotron import NEMOTRON
from tokenlight.text.parsing.formats.qwen3_coder import QWEN3_CODER, SEED_OSS

# In the order of detection: what is more particular first.
TOOL_FORMATS: dict[str, ToolFormat] = {
    format.name: format
    for format in (
        HARMONY,
        DEEPSEEK_V32,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        KIMI_K2,
        MINIMAX_M2,
        GLM45,
        SEED_OSS,
        QWEN3_CODER,
        GEMMA4,
        FUNCTION_GEMMA,
        MISTRAL,
        GRANITE,
        COHERE,
        NEMOTRON,
        LFM2,
        HERMES,
        MINIMAX_M1,
        PYTHONIC,
        LLAMA3_JSON,
        GEMMA3,
        JSON,
        NONE,
    )
}

REASONING_FORMATS: dict[str, ReasoningFormat] = {
    format.name: format
    for format in (
        reasoning.HARMONY,
        reasoning.SEED_OSS,
        reasoning.MISTRAL,
        reasoning.GEMMA4,
        reasoning.GRANITE,
        reasoning.COHERE,
        reasoning.MINIMAX_M2,
        reasoning.GLM45,
        reasoning.KIMI_K2,
        reasoning.QWEN3,
        reasoning.DEEPSEEK_R1,
        reasoning.NONE,
    )
}

# Names of the same formats in vLLM, SGLang and smg. Case, "-", "_" and "." do not count.
_TOOL_NAMES = {
    "hermes": "hermes qwen qwen25 qwen3 granite4 smollm internlm_hermes",
    "qwen3_coder": "qwen_coder qwen3_xml qwen_xml qwen35 step3p5 nanbeige",
    "seed_oss": "seed",
    "llama3_json": "llama llama3 llama31 llama32 llama4_json llama_json",
    "pythonic": "llama4_pythonic llama4 olmo3 toolace",
    "lfm2": "lfm",
    "mistral": "magistral devstral ministral",
    "deepseek_v3": "deepseek deepseek_r1",
    "deepseek_v31": "",
    "deepseek_v32": "deepseek_v4",
    "kimi_k2": "kimi",
    "glm45": "glm glm4 glm46 glm47 glm45_moe glm47_moe",
    "minimax_m2": "",
    "minimax_m1": "minimax apriel",
    "cohere": "command_r7b cohere_command cohere_command4",
    "nemotron": "nemotron_nano",
    "harmony": "openai gpt_oss openai_gptoss",
    "gemma3": "gemma",
    "gemma4": "",
    "functiongemma": "",
    "granite": "granite3",
    "json": "generic",
    "none": "passthrough",
}

_REASONING_NAMES = {
    "none": "passthrough",
    "harmony": "openai gpt_oss openai_gptoss",
    "qwen3": "qwen qwen35 hunyuan smollm3 nemotron deepseek_v31 deepseek_v32 deepseek_v4",
    "deepseek_r1": "deepseek qwen3_thinking step3 deepseek_v3",
    "kimi_k2": "kimi",
    "glm45": "glm glm46 glm47",
    "minimax_m2": "minimax",
    "cohere": "cohere_cmd cohere_command",
    "seed_oss": "seed",
    "mistral": "magistral ministral",
    "gemma4": "",
    "granite": "granite3",
}


def _key(name: str) -> str:
    return "".join(char for char in name.lower() if char not in "-_.")


def _table(names: dict[str, str]) -> dict[str, str]:
    return {_key(name): own for own, others in names.items() for name in (own, *others.split())}


TOOL_NAMES = _table(_TOOL_NAMES)
REASONING_NAMES = _table(_REASONING_NAMES)


def get_tool_format(name: str) -> ToolFormat:
    """The format of a --tool-call-parser name."""
    if (found := TOOL_NAMES.get(_key(name))) is None:
        raise ConfigError(
            f"--tool-call-parser {name!r} is not known; known are {', '.join(TOOL_FORMATS)}"
        )
    return TOOL_FORMATS[found]


def get_reasoning_format(name: str) -> ReasoningFormat:
    """The format of a --reasoning-parser name."""
    if (found := REASONING_NAMES.get(_key(name))) is None:
        raise ConfigError(
            f"--reasoning-parser {name!r} is not known; known are {', '.join(REASONING_FORMATS)}"
        )
    return REASONING_FORMATS[found]
