# SPDX-License-Identifier: Apache-2.0
"""From a decoded body to a request that fits: behind this file nothing is unchecked.

The prompt must leave room for one token; a max_tokens that does not fit is lowered and reported.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tokenlight import wire
from tokenlight.base.errors import ContextTooLong, InvalidRequest
from tokenlight.server.schemas.parameters import GenerationFields
from tokenlight.server.services import Services

# Longer texts are tokenised on a thread: the other streams must not wait for them.
INLINE_CHARS = 4096

_SEED_MASK = 2**63 - 1
# Below this a softmax in float32 is a one-hot, or overflows: greedy says the same safely.
_GREEDY_BELOW = 1e-4
# 0 leaves the likeliest token alone, and so does this.
_LEAST_TOP_P = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A validated request: one prompt, `num_choices` answers."""

    request_id: str
    names: tuple[str, ...]
    """What clients call the request: the answer's id, the x-request-id."""
    prompt_token_ids: Sequence[int]
    sampling: wire.SamplingParams
    max_new_tokens: int
    is_lowered: bool
    """Whether the context had less room than was asked for."""
    stops: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    keeps_stop: bool
    """Whether the text keeps the stop string that ended it."""
    with_special: bool
    """Whether the text shows tokens that steer the model."""
    returns_ids: bool
    num_prompt_logprobs: int | None
    """How many likeliest tokens are told with each prompt token; None: nothing is told."""
    priority: int
    cache_salt: str
    num_choices: int

    @property
    def tells_logprobs(self) -> bool:
        return self.sampling.num_logprobs is not None

    def sampling_of(self, choice: int) -> wire.SamplingParams:
        """Each choice draws its own numbers: choice i uses seed + i."""
        if choice == 0:
            return self.sampling
        seed = (self.sampling.seed + choice) & _SEED_MASK
        return msgspec.structs.replace(self.sampling, seed=seed)


def admit(
    svc: Services,
    fields: GenerationFields,
    prompt_token_ids: Sequence[int],
    *,
    request_id: str,
    max_tokens: int | None,
    param: str,
    names: Sequence[str] = (),
) -> Admitted:
    """Check what only the model knows.

    Args:
        svc: for the model's limits.
        fields: what was asked, its ranges already checked by the schema.
        prompt_token_ids: the prompt.
        request_id: unique among unfinished requests.
        max_tokens: what was asked for; None for all that the context leaves.
        param: the field that the prompt came in, for messages.
        names: what clients call the request.

    Raises:
        InvalidRequest: the prompt is empty, or two fields do not go together.
        ContextTooLong: the prompt leaves no room.
    """
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequest(
            "'stream_options' only goes with \"stream\": true; send both or neither",
            param="stream_options",
        )
    if fields.prompt_logprobs is not None and fields.stream:
        raise InvalidRequest(
            "'prompt_logprobs' does not go with \"stream\": true; send one of the two",
            param="prompt_logprobs",
        )
    if not prompt_token_ids:
        raise InvalidRequest(f"{param!r} is empty: it must have at least 1 token", param=param)
    if max_tokens is not None and (fields.min_tokens or 0) > max_tokens:
        raise InvalidRequest(
            f"'min_tokens' is {fields.min_tokens}, more than the {max_tokens} tokens that may be "
            f"generated; lower it, or send a larger max_tokens",
            param="min_tokens",
        )
    limit_tokens = svc.engine.facts.max_model_tokens
    room_tokens = limit_tokens - len(prompt_token_ids)
    if room_tokens < 1:
        raise ContextTooLong(
            prompt_tokens=len(prompt_token_ids), limit_tokens=limit_tokens, param=param
        )
    asked_tokens = room_tokens if max_tokens is None else max_tokens
    return Admitted(
        request_id=request_id,
        names=tuple(names),
        prompt_token_ids=prompt_token_ids,
        sampling=_sampling(svc, fields),
        max_new_tokens=min(asked_tokens, room_tokens),
        is_lowered=asked_tokens > room_tokens,
        stops=_stops(fields),
        stop_token_ids=_stop_token_ids(svc, fields),
        keeps_stop=bool(fields.include_stop_str_in_output),
        with_special=fields.skip_special_tokens is False,
        returns_ids=bool(fields.return_token_ids),
        num_prompt_logprobs=fields.prompt_logprobs,
        priority=fields.priority or 0,
        cache_salt=fields.cache_salt or "",
        num_choices=fields.n or 1,
    )


def constrained(
    admitted: Admitted,
    grammar: wire.Grammar | None,
    thinking: wire.ThinkingBudget | None = None,
) -> Admitted:
    """The request, held to what its answer must look like and to how long it may reason."""
    if grammar is None and thinking is None:
        return admitted
    sampling = msgspec.structs.replace(admitted.sampling, grammar=grammar, thinking=thinking)
    return replace(admitted, sampling=sampling)


def limit_headers(prompts: Sequence[Admitted]) -> dict[str, str]:
    """Report a lowered max_tokens, the smallest over the prompts."""
    lowered = [p.max_new_tokens for p in prompts if p.is_lowered]
    return {"x-tokenlight-max-tokens": str(min(lowered))} if lowered else {}


def _sampling(svc: Services, fields: GenerationFields) -> wire.SamplingParams:
    seed = svc.config.seed if fields.seed is None else fields.seed

    def number(name: str, otherwise: float) -> float:
        asked: float | None = getattr(fields, name)
        return svc.advised.get(name, otherwise) if asked is None else asked

    temperature = number("temperature", 1.0)
    return wire.SamplingParams(
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_k=max(int(number("top_k", 0)), 0),
        top_p=max(number("top_p", 1.0), _LEAST_TOP_P),
        min_p=number("min_p", 0.0),
        seed=secrets.randbits(63) if seed is None else seed & _SEED_MASK,
        repetition_penalty=number("repetition_penalty", 1.0),
        frequency_penalty=fields.frequency_penalty or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        logit_bias=_logit_bias(svc, fields.logit_bias or {}),
        min_tokens=fields.min_tokens or 0,
        num_logprobs=fields.num_logprobs,
        num_prompt_logprobs=fields.num_prompt_logprobs,
    )


def _logit_bias(svc: Services, asked: Mapping[str, float]) -> dict[int, float]:
    vocab_size = svc.engine.facts.vocab_size
    biases = {}
    for name, bias in asked.items():
        # str.isdecimal alone would let in digits of other scripts, which int() reads as well.
        token_id = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else -1
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"'logit_bias' has {name!r}, its names must be token ids from 0 to "
                f"{vocab_size - 1}",
                param="logit_bias",
            )
        biases[token_id] = bias
    return biases


def _stop_token_ids(svc: Services, fields: GenerationFields) -> tuple[int, ...]:
    own = () if fields.ignore_eos else svc.tokenizer.eos_token_ids
    asked = fields.stop_token_ids or ()
    vocab_size = svc.engine.facts.vocab_size
    for token_id in asked:
        if token_id >= vocab_size:
            raise InvalidRequest(
                f"'stop_token_ids' has {token_id}, this model has 0 to {vocab_size - 1}",
                param="stop_token_ids",
            )
    return (*own, *asked)


def _stops(fields: GenerationFields) -> tuple[str, ...]:
    if fields.stop is None:
        return ()
    return (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop)
