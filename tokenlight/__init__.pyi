# SPDX-License-Identifier: Apache-2.0
# The types of the lazy names: a stub, since an import here would tie every room to the engine's.
from tokenlight.engine.client import AsyncLLM as AsyncLLM
from tokenlight.engine.llm import LLM as LLM
from tokenlight.wire import SamplingParams as SamplingParams

__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]
__version__: str
