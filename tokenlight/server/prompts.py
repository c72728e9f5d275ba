# SPDX-License-Identifier: Apache-2.0
"""Texts and messages to prompt token ids, and token ids to texts.

Long ones are made on a thread: the other streams must not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from tokenlight.base.errors import InvalidRequest
from tokenlight.server.admission import INLINE_CHARS
from tokenlight.server.answer.prompt import make_prompt
from tokenlight.server.chat.decode import checked_variables
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import decode_tools
from tokenlight.server.services import Services
from tokenlight.text.conversation import Conversation, Message, ReasoningWish, decode_messages

_Result = TypeVar("_Result")


async def text_token_ids(svc: Services, text: str, *, add_bos: bool | None = None) -> list[int]:
    """A text as it stands; special tokens that it names are those tokens."""
    return await _made(len(text), partial(svc.tokenizer.encode, text, add_bos=add_bos))


async def text_of(svc: Services, token_ids: list[int]) -> str:
    """The text of token ids, special tokens included."""
    decode = partial(svc.tokenizer.decode, token_ids, with_special=True)
    return await _made(len(token_ids), decode)


async def token_texts(svc: Services, token_ids: list[int]) -> list[str]:
    """Each token's text; what is no whole character is U+FFFD."""
    decode = partial(svc.tokenizer.decode, with_special=True)
    return await _made(len(token_ids), lambda: [decode([token_id]) for token_id in token_ids])


async def _made(length: int, make: Callable[[], _Result]) -> _Result:
    return make() if length <= INLINE_CHARS else await asyncio.to_thread(make)


async def messages_token_ids(
    svc: Services,
    messages: Sequence[Message],
    notes: Notes,
    *,
    tools: Sequence[dict[str, Any]],
    reasoning_effort: str | None,
    add_generation_prompt: bool | None,
    variables: Mapping[str, Any] | None,
) -> list[int]:
    """Messages and tools through the model's chat template; what was done to them goes to `notes`.

    Raises:
        InvalidRequest: the template refuses them, or a tool is malformed.
        UnsupportedParameter: they have more than text in them.
    """
    known = decode_tools(tools, notes)
    conversation = Conversation(
        turns=decode_messages(messages, notes.ignore),
        tools=tuple(found.tool for found in known.values()),
        reasoning=ReasoningWish.of_effort(reasoning_effort),
        opens_answer=add_generation_prompt is not False,
        variables=checked_variables(variables),
    )
    prompt = await make_prompt(svc, conversation, notes)
    return prompt.token_ids


def checked_ids(svc: Services, token_ids: list[int], param: str) -> list[int]:
    """The ids, all of which the model has.

    Raises:
        InvalidRequest: one is outside its vocabulary.
    """
    vocab_size = svc.engine.facts.vocab_size
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"{param!r} has the token id {token_id}, this model has 0 to {vocab_size - 1}; "
                f"tokenise with this model's tokenizer",
                param=param,
            )
    return token_ids
