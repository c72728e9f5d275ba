# SPDX-License-Identifier: Apache-2.0
"""Tell a client that asks why its prompt's prefix was not found."""

from __future__ import annotations

from starlette.requests import Request

from tokenlight.server.answer.prompt import Prompt
from tokenlight.server.prefixes import HEADER, said_chars, turn_at, turn_spans
from tokenlight.server.services import Services, owner


async def prefix_headers(svc: Services, request: Request, prompt: Prompt) -> dict[str, str]:
    """Compare the prompt with those before it, if asked to; keep it for those after it."""
    asker = owner(request)
    turns = prompt.conversation.turns
    headers = {}
    if HEADER in request.headers:
        parting = await svc.recent_prompts.compare(asker, prompt.token_ids)
        common = prompt.token_ids[: parting.num_common_tokens]
        num_common_chars = len(svc.tokenizer.decode(common, with_special=True))
        cause = parting.cause(num_common_chars)
        told = f"cause={cause}, common_tokens={parting.num_common_tokens}"
        if cause == "changed":
            index = turn_at(turn_spans(turns, prompt.text), num_common_chars)
            role = f", role={turns[index].role}" if index >= 0 else ""
            told += f", turn={index}{role}"
        headers["x-tokenlight-prefix"] = told
    svc.recent_prompts.note(asker, prompt.token_ids, said_chars(turns, prompt.text))
    return headers
