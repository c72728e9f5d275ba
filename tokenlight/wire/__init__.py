# SPDX-License-Identifier: Apache-2.0
"""Messages between processes and their codec; plain data."""

from tokenlight.wire.codec import (
    decode_from_engine,
    decode_to_engine,
    encode,
    pack_token_ids,
    unpack_token_ids,
)
from tokenlight.wire.messages import (
    MAX_LOGPROBS,
    Abort,
    Delta,
    Deltas,
    Failed,
    FinishReason,
    FromEngine,
    Generate,
    Grammar,
    ModelFacts,
    PromptLogprobs,
    Ready,
    ResetPrefixCache,
    SamplingParams,
    Status,
    ToEngine,
    TokenLogprobs,
)

__all__ = [
    "MAX_LOGPROBS",
    "Abort",
    "Delta",
    "Deltas",
    "Failed",
    "FinishReason",
    "FromEngine",
    "Generate",
    "Grammar",
    "ModelFacts",
    "PromptLogprobs",
    "Ready",
    "ResetPrefixCache",
    "SamplingParams",
    "Status",
    "ToEngine",
    "TokenLogprobs",
    "decode_from_engine",
    "decode_to_engine",
    "encode",
    "pack_token_ids",
    "unpack_token_ids",
]
