# SPDX-License-Identifier: Apache-2.0
"""TokenLight: an LLM inference engine for agents."""

from importlib import import_module

__version__ = "0.1.0"

# Exported names and where they live; imported on first use: `import tokenlight` stays light.
_EXPORTS = {
    "AsyncLLM": "tokenlight.engine.client",
    "LLM": "tokenlight.engine.llm",
    "SamplingParams": "tokenlight.wire",
}

__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tokenlight' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
