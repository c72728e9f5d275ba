# SPDX-License-Identifier: Apache-2.0
"""From arguments to `wire.Generate`: behind this door every request fits the model."""

from collections.abc import Sequence

import msgspec
import numpy as np

from tokenlight import wire
from tokenlight.base.errors import ContextTooLong, InvalidRequest


def make_request(
    facts: wire.ModelFacts,
    prompt_token_ids: Sequence[int],
    sampling: wire.SamplingParams,
    *,
    request_id: str,
    max_new_tokens: int,
    stop_token_ids: Sequence[int],
    priority: int,
    cache_salt: str = "",
) -> wire.Generate:
    """Check against the model's facts.

    Raises:
        InvalidRequest: a wrong type, an empty prompt, a token outside the vocabulary, a number out
            of its range.
        ContextTooLong: the prompt alone does not fit.
    """
    request = _typed(
        wire.Generate(
            request_id=request_id,
            prompt_token_ids=b"",
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            stop_token_ids=tuple(_sequence("stop_token_ids", stop_token_ids)),
            priority=priority,
            cache_salt=cache_salt,
        )
    )
    num_tokens = len(_sequence("prompt", prompt_token_ids))
    if num_tokens == 0:
        raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
    if num_tokens >= facts.max_model_tokens:
        raise ContextTooLong(prompt_tokens=num_tokens, limit_tokens=facts.max_model_tokens)
    if max_new_tokens < 1:
        raise InvalidRequest(
            f"max_tokens must be at least 1, got {max_new_tokens}", param="max_tokens"
        )
    if not -(1 << 31) <= priority < 1 << 31:
        raise InvalidRequest(
            f"priority must be from -2^31 to 2^31 - 1, got {priority}", param="priority"
        )
    _check_sampling(request.sampling)
    _check_biases(request.sampling, facts.vocab_size)
    request = msgspec.structs.replace(
        request,
        max_new_tokens=min(max_new_tokens, facts.max_model_tokens - num_tokens),
        stop_token_ids=tuple(t for t in request.stop_token_ids if 0 <= t < facts.vocab_size),
    )
    _check_can_be_sent(request)
    packed = _packed(prompt_token_ids, facts.vocab_size)
    return msgspec.structs.replace(request, prompt_token_ids=packed)


def _sequence(name: str, token_ids: Sequence[int]) -> Sequence[int]:
    try:
        len(token_ids)
    except TypeError:
        raise InvalidRequest(
            f"{name} has the wrong type: it must be a sequence of token ids, got "
            f"{type(token_ids).__name__}",
            param=name,
        ) from None
    return token_ids


def _check_biases(sampling: wire.SamplingParams, vocab_size: int) -> None:
    for token_id, bias in sampling.logit_bias.items():
        if not 0 <= token_id < vocab_size or not -100 <= bias <= 100:
            raise InvalidRequest(
                f"logit_bias has {token_id}: {bias}; token ids are from 0 to {vocab_size - 1}, "
                f"biases from -100 to 100",
                param="logit_bias",
            )


def _typed(request: wire.Generate) -> wire.Generate:
    """A wrong type would be dropped by the engine's decoder, and its caller would wait for ever."""
    if not isinstance(request.sampling, wire.SamplingParams):
        raise InvalidRequest(
            f"a parameter has the wrong type: sampling must be SamplingParams, got "
            f"{type(request.sampling).__name__}",
            param="sampling",
        )
    try:
        plain = msgspec.to_builtins(request, builtin_types=(bytes,))
        return msgspec.convert(plain, wire.Generate)
    except (msgspec.ValidationError, TypeError) as fault:
        raise InvalidRequest(f"a parameter has the wrong type: {fault}") from None


def _check_can_be_sent(request: wire.Generate) -> None:
    """Of a right type, and yet no text that can be written: half of a surrogate pair."""
    try:
        wire.encode(request)
    except UnicodeEncodeError as fault:
        raise InvalidRequest(f"a parameter is no text that UTF-8 can hold: {fault}") from None


def _packed(prompt_token_ids: Sequence[int], vocab_size: int) -> bytes:
    try:
        packed = wire.pack_token_ids(prompt_token_ids)
    except (TypeError, OverflowError) as fault:
        raise InvalidRequest(f"a prompt token is not a token id: {fault}", param="prompt") from None
    ids = np.asarray(wire.unpack_token_ids(packed))
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        wrong = int(ids[(ids < 0) | (ids >= vocab_size)][0])
        raise InvalidRequest(
            f"prompt token {wrong} is outside the vocabulary of {vocab_size} tokens", param="prompt"
        )
    return packed


def _check_sampling(sampling: wire.SamplingParams) -> None:
    """Comparisons are written so that NaN fails them."""
    ranges = (
        ("temperature", sampling.temperature >= 0, "at least 0"),
        ("top_k", 0 <= sampling.top_k < 1 << 31, "from 0 (keeps all) to 2^31 - 1"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("min_p", 0 <= sampling.min_p <= 1, "from 0 to 1"),
        ("seed", 0 <= sampling.seed < 1 << 63, "from 0 to 2^63 - 1"),
        ("repetition_penalty", 0 < sampling.repetition_penalty <= 10, "above 0 and at most 10"),
        ("frequency_penalty", -2 <= sampling.frequency_penalty <= 2, "from -2 to 2"),
        ("presence_penalty", -2 <= sampling.presence_penalty <= 2, "from -2 to 2"),
        ("min_tokens", 0 <= sampling.min_tokens < 1 << 31, "from 0 to 2^31 - 1"),
        (
            "num_logprobs",
            0 <= (sampling.num_logprobs or 0) <= wire.MAX_LOGPROBS,
            f"at most {wire.MAX_LOGPROBS}",
        ),
        (
            "num_prompt_logprobs",
            0 <= (sampling.num_prompt_logprobs or 0) <= wire.MAX_LOGPROBS,
            f"from 0 to {wire.MAX_LOGPROBS}",
        ),
    )
    for name, is_right, allowed in ranges:
        if not is_right:
            raise InvalidRequest(
                f"{name} must be {allowed}, got {getattr(sampling, name)}", param=name
            )
