# SPDX-License-Identifier: Apache-2.0
"""Fields of the three protocols (and of vLLM's extension of them) that we do not implement.

They are refused by name, never silently dropped; a value that asks for nothing is let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import msgspec

# What a client library sends when its user did not ask for the field.
_NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A known field: what to do instead, and the values that ask for nothing."""

    advice: str
    harmless: tuple[object, ...] = ()
    is_on: bool = False
    """Whether leaving it out means true: then false asks for something."""

    def allows(self, value: object) -> bool:
        if self.is_on:
            return value is None or value is True
        return value in _NOTHING or value in self.harmless


_TOOLS = "use tools and tool_choice, their successors"
_SHAPE = "use structured_outputs"
_TEXT = "leave it out: this server reads and writes text only"
_WORKS_ALONE = "leave it out: this server asks no other service"
_WHOLE = "send the whole conversation"

COMMON: dict[str, Unsupported] = {
    "best_of": Unsupported(advice="use n and choose among the choices", harmless=(1,)),
    "use_beam_search": Unsupported(advice="leave it out: tokens are sampled one by one"),
    "store": Unsupported(advice="leave it out: nothing is stored"),
    "bad_words": Unsupported(advice="leave it out"),
    "allowed_token_ids": Unsupported(advice="leave it out"),
    "truncate_prompt_tokens": Unsupported(advice="shorten the prompt yourself: nothing is cut"),
    "logits_processors": Unsupported(advice="leave it out"),
    "lora_request": Unsupported(advice="leave it out: no adapters are served"),
    "kv_transfer_params": Unsupported(advice="leave it out"),
    "ec_transfer_params": Unsupported(advice="leave it out"),
    "vllm_xargs": Unsupported(advice="leave it out"),
    "length_penalty": Unsupported(advice="leave it out: it is beam search's", harmless=(1,)),
    "early_stopping": Unsupported(advice="leave it out: it is beam search's"),
    "spaces_between_special_tokens": Unsupported(advice="leave it out", is_on=True),
    "return_tokens_as_token_ids": Unsupported(advice="use return_token_ids"),
}

CHAT: dict[str, Unsupported] = {
    **COMMON,
    "functions": Unsupported(advice=_TOOLS),
    "function_call": Unsupported(advice=_TOOLS, harmless=("none", "auto")),
    "modalities": Unsupported(advice=_TEXT, harmless=(["text"],)),
    "audio": Unsupported(advice=_TEXT),
    "web_search_options": Unsupported(advice="leave it out: this server searches nothing"),
    "continue_final_message": Unsupported(advice="end the messages with the user's turn"),
    "echo": Unsupported(advice="leave it out"),
    "chat_template": Unsupported(advice="templates are chosen by who starts the server"),
    "include_reasoning": Unsupported(
        advice='send "reasoning_effort": "none", or pass over reasoning_content', is_on=True
    ),
    "add_special_tokens": Unsupported(advice="leave it out: the template writes them"),
    "thinking_token_budget": Unsupported(advice="use thinking.budget_tokens of /v1/messages"),
    "moderation": Unsupported(advice=_WORKS_ALONE),
    "mm_processor_kwargs": Unsupported(advice=_TEXT),
    "media_io_kwargs": Unsupported(advice=_TEXT),
    "documents": Unsupported(advice="put the documents into the messages"),
}

RESPONSES: dict[str, Unsupported] = {
    "background": Unsupported(advice="leave it out, or stream: nothing runs in the background"),
    "conversation": Unsupported(advice="use previous_response_id"),
    "prompt": Unsupported(advice="write the prompt into instructions and input"),
    "max_tool_calls": Unsupported(advice="leave it out: this server runs no tools itself"),
    "top_logprobs": Unsupported(advice="leave it out"),
    "access_programs": Unsupported(advice=_WORKS_ALONE, harmless=({"cyber": "standard"},)),
    "background_options": Unsupported(advice="leave it out: nothing runs in the background"),
    "image": Unsupported(advice=_TEXT),
    "moderation": Unsupported(advice=_WORKS_ALONE),
    "personality": Unsupported(advice="write it into instructions"),
}

MESSAGES: dict[str, Unsupported] = {
    "compaction": Unsupported(advice="compact the conversation yourself: nothing is cut"),
    "container": Unsupported(advice="leave it out: this server runs no tools itself"),
    "fallback_credit_token": Unsupported(advice=_WORKS_ALONE),
    "fallbacks": Unsupported(advice=_WORKS_ALONE),
    "inference_geo": Unsupported(advice="leave it out: this server is in one place"),
    "speed": Unsupported(advice="leave it out: all run alike", harmless=("standard",)),
    "thread": Unsupported(advice=_WHOLE, harmless=({"type": "create"},)),
}

COMPLETION: dict[str, Unsupported] = {
    **COMMON,
    "response_format": Unsupported(advice=_SHAPE, harmless=({"type": "text"},)),
    "suffix": Unsupported(advice="leave it out: this model does not fill in the middle"),
    "prompt_embeds": Unsupported(advice="send text or token ids"),
    "add_special_tokens": Unsupported(advice="send the prompt as token ids", is_on=True),
}


@cache
def fields_of(schema: type[msgspec.Struct]) -> frozenset[str]:
    """The names a schema knows, as they are sent."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(schema))
