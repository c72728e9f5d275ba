# SPDX-License-Identifier: Apache-2.0
"""Messages between the API process and the engine process: plain data, one codec.

The walk: the client sends `Generate` and `Abort`; the engine answers with `Ready` or `Failed` once,
then `Deltas` after each step and `Status` every second. A prompt travels as packed int32.
"""

from typing import Literal

import msgspec

MAX_LOGPROBS = 20
"""Most likeliest tokens that one token can be told with."""

FinishReason = Literal["stop", "length", "abort", "error"]


class Grammar(msgspec.Struct, frozen=True):
    """What the answer must look like."""

    rules: str
    """llguidance's Lark; checked at the door."""
    after: str = ""
    """Text that must come first, after which the rules hold: the end of the reasoning."""


class ThinkingBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How long the model may reason before it is made to answer."""

    num_tokens: int
    """At most so many are said before the ending."""
    opener: int | None
    """The token that opens the reasoning; None: the prompt has opened it."""
    closer: int
    """The token that closes it."""
    ending: tuple[int, ...]
    """What is said once the budget is spent; the closer comes last."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen. Validated at the door (`text`/`server`), trusted behind it."""

    temperature: float = 1.0
    """0 means greedy: the largest logit, the lowest id among equals."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probabilities sum to at least this."""
    min_p: float = 0.0
    """Keep tokens at least this many times as likely as the most likely one."""
    seed: int = 0
    """Key of this request's random numbers, together with each token's position. 63 bits."""
    repetition_penalty: float = 1.0
    """Divides the positive, multiplies the negative logits of tokens in prompt or answer."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit once for each time that the answer has it."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that the answer has."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these tokens."""
    min_tokens: int = 0
    """Stop tokens cannot be sampled before the answer has this many tokens."""
    grammar: Grammar | None = None
    """Only tokens that its rules allow are sampled."""
    thinking: ThinkingBudget | None = None
    """None: the model reasons as long as it likes."""
    num_logprobs: int | None = None
    """Tell each token's log-probability and those of this many likeliest tokens; None: neither."""
    num_prompt_logprobs: int | None = None
    """The same of the prompt's tokens. Such a prompt is computed as a whole: it reuses nothing."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    request_id: str
    prompt_token_ids: bytes
    """int32, little-endian, packed."""
    sampling: SamplingParams
    max_new_tokens: int
    """At least 1; already lowered to what the context leaves."""
    stop_token_ids: tuple[int, ...] = ()
    """Sampling one of these ends the request; the token is counted and not delivered."""
    priority: int = 0
    """Lower runs first, as in vLLM."""
    cache_salt: str = ""
    """Only requests of the same salt share computed prefixes."""


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="abort"):
    request_id: str


class ResetPrefixCache(msgspec.Struct, frozen=True, kw_only=True, tag="reset_prefix_cache"):
    """What was computed before serves no later prompt."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities at one position: the model's own, before any shaping."""

    logprob: float
    """Of the token that was sampled."""
    top_token_ids: list[int]
    """The likeliest tokens, likeliest first."""
    top_logprobs: list[float]


class PromptLogprobs(TokenLogprobs, frozen=True, array_like=True):
    """Of a token that stands in the prompt."""

    rank: int
    """1 for the likeliest."""


class Delta(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one step did for one request."""

    request_id: str
    token_ids: list[int]
    """New tokens, in order, without the stop token. May be empty when the request finishes."""
    num_cached_tokens: int
    """Prompt tokens whose KV was reused; constant from the first delta on."""
    finish_reason: FinishReason | None = None
    num_sampled_tokens: int = 0
    """Tokens sampled so far, the stop token included: what usage reports."""
    error: str | None = None
    """Why, when finish_reason is "error"."""
    logprobs: list[TokenLogprobs] | None = None
    """One per token of `token_ids`, when asked for."""
    prompt_logprobs: list[PromptLogprobs] | None = None
    """Of the prompt's tokens from the second on; in the first delta alone, when asked for."""


class Deltas(msgspec.Struct, frozen=True, kw_only=True, tag="deltas"):
    deltas: list[Delta]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine knows once the model is loaded."""

    max_model_tokens: int
    """Prompt and answer together; what the KV pool can hold is counted in."""
    vocab_size: int
    block_tokens: int
    num_blocks: int
    kv_bytes: int
    weights_bytes: int
    load_s: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    facts: ModelFacts


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The engine could not start. `code` is a `TokenLightError`'s."""

    code: str
    message: str


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """The engine's heartbeat: each second, from a thread of its own, so a busy engine still beats.

    All counts are totals since start unless they say `running`, `waiting` or `free`.
    """

    num_steps: int
    step_running_s: float
    """How long the current step has run; 0 between steps."""
    step_limit_s: float = 10.0
    """A step that runs longer than this counts as stalled; grows with the slowest step seen."""
    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_cached_blocks: int
    """Free blocks whose contents can still serve a prefix."""
    num_prompt_tokens: int
    num_cached_tokens: int
    num_sampled_tokens: int
    num_preemptions: int
    num_failed: int = 0
    """Requests that ended with an error: non-finite logits, or a step that raised."""


ToEngine = Generate | Abort | ResetPrefixCache
FromEngine = Ready | Failed | Deltas | Status
