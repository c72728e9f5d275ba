# SPDX-License-Identifier: Apache-2.0
"""The generation fields that chat and completions share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tokenlight.wire import MAX_LOGPROBS

MAX_STOPS = 64
MAX_STOP_CHARS = 4096
MAX_BIASES = 1024
_INT64 = 2**63 - 1

Probability = Annotated[float, Meta(ge=0, le=1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Seed = Annotated[int, Meta(ge=-_INT64 - 1, le=_INT64)]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None
    """Send one more chunk at the end, without choices, that carries usage."""
    continuous_usage_stats: bool | None = None
    """With include_usage: every chunk carries the usage so far."""
    include_obfuscation: bool | None = None
    """Changes nothing: no padding is sent."""


Json = dict[str, Any] | str
"""A JSON Schema, or the text of one."""


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must look like: one of the first five. A mistyped one is not dropped."""

    json: Json | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    """Lark or GBNF."""
    disable_fallback: bool | None = None
    """Changes nothing: there is no other way that a shape could be enforced by."""
    disable_any_whitespace: bool | None = None
    """Changes nothing: JSON comes in one form."""
    disable_additional_properties: bool | None = None
    """Refused when true, as the next two are when given: they are vLLM's, and not implemented."""
    whitespace_pattern: str | None = None
    structural_tag: str | None = None


class GenerationFields(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate; null means the same as leaving a field out."""

    model: str | None = None
    """A name from /v1/models; may be left out."""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Most tokens to generate per choice; lowered when the context has less room."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """0 is greedy. Default 1."""
    top_p: Probability | None = None
    """Sample among the most likely tokens that sum to this probability. Default 1: all."""
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    """Sample among the k most likely tokens; 0 and -1: all. Default 0."""
    min_p: Probability | None = None
    """Sample among tokens at least this many times as likely as the likeliest. Default 0: all."""
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    """Above 1, tokens of the prompt and the answer become less likely. Default 1."""
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """Subtracted from a token's logit for each time that the answer has it. Default 0."""
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """Subtracted from the logits of tokens that the answer has. Default 0."""
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=MAX_BIASES)] | None = None
    """Token id (as a string) -> what is added to its logit."""
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """End tokens cannot come before the answer has this many tokens. Default 0."""
    seed: Seed | None = None
    """The same seed, prompt and parameters give the same text. Default: a random one."""
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    """Choices per prompt. Default 1; choice i uses seed + i."""
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOPS)] | None = None
    """Text that ends the answer; it is not part of it."""
    include_stop_str_in_output: bool | None = None
    """Keep the stop text in the answer."""
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOPS)] | None = None
    """Tokens that end the answer as the model's own end tokens do; they are not part of it."""
    ignore_eos: bool | None = None
    """Go on after the model's own end tokens."""
    skip_special_tokens: bool | None = None
    """Leave tokens that steer the model out of the text. Default true."""
    return_token_ids: bool | None = None
    """Add `prompt_token_ids` and each choice's `token_ids` to the answer."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    """Lower runs first. Default 0."""
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """Add `prompt_logprobs`: of each prompt token and of this many likeliest; not with stream."""
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """Share computed prefixes only with requests of the same salt."""
    stream: bool | None = None
    """Answer with server-sent events."""
    stream_options: StreamOptions | None = None
    """Only with stream."""
    structured_outputs: StructuredOutputs | None = None
    """What the answer must look like. Default: anything."""
    guided_json: Json | None = None
    """An older name of structured_outputs.json; the next three likewise."""
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    user: str | None = None
    """The caller's own name for its user; used for nothing."""

    @property
    def num_logprobs(self) -> int | None:
        """How many likeliest tokens to tell with each token; None: nothing is told."""
        return None

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The same of the prompt."""
        return self.prompt_logprobs
