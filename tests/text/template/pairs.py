# SPDX-License-Identifier: Apache-2.0
"""Each family twice: transformers' tokenizer and ours, of the same folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import (
    AutoTokenizer,
    GemmaTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerBase,
    Qwen2Tokenizer,
)

from tests.text.template.families import (
    FAMILIES,
    PLAIN_CONVERSATIONS,
    TOOL_CONVERSATIONS,
    TOOLS,
    Family,
)
from tests.text.tokenizer.saved import byte_level, folder, sentencepiece
from tokenlight.text import ChatTemplate, Tokenizer

# What a family's template itself raises an exception for.
REFUSED = {("llama3", "two calls")}


@dataclass(frozen=True, slots=True)
class Pair:
    theirs: PreTrainedTokenizerBase
    tokenizer: Tokenizer
    template: ChatTemplate

    def token_ids(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        """Ours, of what the template writes."""
        return self.tokenizer.encode(self.template.render(messages, **options), add_bos=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation for one family's template."""

    family: str
    title: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None

    @property
    def template_messages(self) -> list[dict[str, Any]]:
        """The conversation with texts for nulls and objects for the arguments that spell one."""
        return [_for_template(message) for message in self.messages]

    @property
    def is_refused(self) -> bool:
        return (self.family, self.title) in REFUSED


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    made = {**message, "content": message["content"] or ""}
    if "tool_calls" in message:
        made["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _arguments(call)}}
            for call in message["tool_calls"]
        ]
    return made


def _arguments(call: dict[str, Any]) -> Any:
    arguments = call["function"]["arguments"]
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def cases() -> Iterator[Case]:
    for name, family in FAMILIES.items():
        for title, messages in PLAIN_CONVERSATIONS.items():
            yield Case(name, title, messages, None)
        for title, messages in TOOL_CONVERSATIONS.items() if family.has_tools else ():
            for tools in (TOOLS, None):
                yield Case(name, title, messages, tools)


def make_pairs(directory: Path) -> dict[str, Pair]:
    """Save each family's tokenizer below `directory`, and open it both ways."""
    return {name: _pair(family, directory / name) for name, family in FAMILIES.items()}


def _pair(family: Family, path: Path) -> Pair:
    made = _vocabulary(family.vocabulary)
    made.add_tokens([AddedToken(token, special=True) for token in family.special_tokens])
    made.chat_template = family.template
    made.save_pretrained(path)
    checkpoint = folder(path, template=family.template)
    return Pair(
        AutoTokenizer.from_pretrained(path),
        Tokenizer.from_checkpoint(checkpoint),
        ChatTemplate.from_checkpoint(checkpoint),
    )


def _vocabulary(name: str) -> PreTrainedTokenizerBase:
    if name == "spm-llama":
        return sentencepiece(LlamaTokenizer, name)
    if name == "spm-gemma":
        ends = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<unk>"}
        return sentencepiece(GemmaTokenizer, name, **ends)
    return byte_level(Qwen2Tokenizer, bos_token="<s>", eos_token="</s>")
