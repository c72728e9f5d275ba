# SPDX-License-Identifier: Apache-2.0
"""Answers in the chat protocol: in one piece, or as the chunks of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from tokenlight.base.clock import unix_s
from tokenlight.server.admission import Admitted
from tokenlight.server.answer.answer import Ended
from tokenlight.server.answer.items import Change, Closed, Grew, Item, Opened
from tokenlight.server.decoding.openai_tools import KnownTool, custom_input
from tokenlight.server.generation import Piece, Tally, token_ids_of
from tokenlight.server.http.sse import sse_event
from tokenlight.server.logprobs import chat_logprobs, prompt_logprobs
from tokenlight.server.schemas.chat import (
    AssistantMessage,
    CalledCustom,
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    FinishReason,
    ToolCallDelta,
)
from tokenlight.server.schemas.logprobs import ChatLogprobs
from tokenlight.server.schemas.parse_failure import parse_failures
from tokenlight.server.services import Services


def finish_reason(ended: Ended) -> FinishReason:
    if ended.finish_reason != "stop":
        return ended.finish_reason
    if ended.is_cut:
        return "length"
    return "tool_calls" if ended.has_calls_to_run else "stop"


class ChatEncoder:
    """One response's encoder: of all its choices, whole or streamed."""

    def __init__(
        self, svc: Services, admitted: Admitted, tally: Tally, known: Mapping[str, KnownTool]
    ) -> None:
        self._svc = svc
        self._admitted = admitted
        self._tally = tally
        self._known = known
        self._made_s = unix_s()
        self._make_chunk = partial(
            ChatChunk, id=admitted.request_id, created=self._made_s, model=svc.model_name
        )
        self._opened: set[int] = set()
        # Calls are numbered by themselves, items by their place among all items.
        self._call_places: dict[tuple[int, int], int] = {}

    # ---- whole -----------------------------------------------------------------------------------

    def completion(
        self, endings: Sequence[Ended], pieces: Sequence[Sequence[Piece]]
    ) -> ChatCompletion:
        returns_ids = self._admitted.returns_ids
        return ChatCompletion(
            id=self._admitted.request_id,
            created=self._made_s,
            model=self._svc.model_name,
            choices=[
                ChatChoice(
                    index=i,
                    message=self._message(ended),
                    finish_reason=finish_reason(ended),
                    token_ids=token_ids_of(pieces[i]) if returns_ids else UNSET,
                    logprobs=self._logprobs(pieces[i]),
                    parse_failures=parse_failures(ended.failures),
                )
                for i, ended in enumerate(endings)
            ],
            usage=self._tally.usage(),
            prompt_token_ids=list(self._admitted.prompt_token_ids) if returns_ids else UNSET,
            prompt_logprobs=prompt_logprobs(self._svc.tokenizer, self._admitted, pieces[0]),
        )

    def _message(self, ended: Ended) -> AssistantMessage:
        texts = {
            kind: "".join(item.text for item in ended.items if item.kind == kind)
            for kind in ("text", "reasoning")
        }
        calls = [self._call(item) for item in ended.items if item.kind == "call"]
        return AssistantMessage(
            content=texts["text"] if texts["text"] or not calls else None,
            reasoning_content=texts["reasoning"] or UNSET,
            tool_calls=calls or UNSET,
        )

    def _call(self, item: Item) -> ToolCallDelta:
        incomplete: bool | UnsetType = UNSET if item.is_complete else True
        known = self._known.get(item.name)
        if known is not None and known.is_custom:
            called = CalledCustom(name=known.name, input=custom_input(item.text))
            return ToolCallDelta(
                id=item.call_id, type="custom", custom=called, incomplete=incomplete
            )
        function = CalledFunction(name=item.name, arguments=item.text)
        return ToolCallDelta(
            id=item.call_id, type="function", function=function, incomplete=incomplete
        )

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        return chat_logprobs(self._svc.tokenizer, pieces) if self._admitted.tells_logprobs else None

    # ---- streamed --------------------------------------------------------------------------------

    def chunks(self, piece: Piece, changes: Sequence[Change], ended: Ended | None) -> bytes:
        """The events of one piece of one choice."""
        events = b"" if piece.index in self._opened else self._open(piece.index)
        deltas = [delta for change in changes if (delta := self._delta(piece.index, change))]
        tells_tokens = self._admitted.returns_ids or self._admitted.tells_logprobs
        if not deltas and tells_tokens and piece.token_ids:
            deltas = [ChatDelta(content="")]
        for place, delta in enumerate(deltas):
            # What is told of a piece's tokens is told once.
            told = [piece] if place == 0 else []
            events += self._chunk(
                ChatChunkChoice(
                    index=piece.index,
                    delta=delta,
                    token_ids=token_ids_of(told) if self._admitted.returns_ids else UNSET,
                    logprobs=self._logprobs(told) if told else None,
                )
            )
        if ended is not None:
            events += self._chunk(
                ChatChunkChoice(
                    index=piece.index,
                    delta=ChatDelta(),
                    finish_reason=finish_reason(ended),
                    parse_failures=parse_failures(ended.failures),
                )
            )
        return events

    def usage_chunk(self) -> bytes:
        return sse_event(self._make_chunk(choices=[], usage=self._tally.usage()))

    def _open(self, index: int) -> bytes:
        is_first = not self._opened
        self._opened.add(index)
        shows_prompt = is_first and self._admitted.returns_ids
        opening = ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
        return sse_event(
            self._make_chunk(
                choices=[opening],
                usage=self._tally.in_chunk(),
                prompt_token_ids=list(self._admitted.prompt_token_ids) if shows_prompt else UNSET,
            )
        )

    def _delta(self, index: int, change: Change) -> ChatDelta | None:
        item = change.item
        if item.kind != "call":
            if not isinstance(change, Grew):
                return None
            if item.kind == "text":
                return ChatDelta(content=change.delta)
            return ChatDelta(reasoning_content=change.delta)
        key = (index, item.index)
        if isinstance(change, Opened):
            self._call_places[key] = sum(choice == index for choice, _ in self._call_places)
        call = self._call_delta(self._call_places[key], change)
        return None if call is None else ChatDelta(tool_calls=[call])

    def _call_delta(self, place: int, change: Change) -> ToolCallDelta | None:
        item = change.item
        known = self._known.get(item.name)
        if known is not None and known.is_custom:
            if not isinstance(change, Closed):
                return None  # its text is inside the arguments: known once they are whole
            return ToolCallDelta(
                index=place,
                id=item.call_id,
                type="custom",
                custom=CalledCustom(name=known.name, input=custom_input(item.text)),
            )
        if isinstance(change, Opened):
            function = CalledFunction(name=item.name, arguments="")
            return ToolCallDelta(index=place, id=item.call_id, type="function", function=function)
        if isinstance(change, Grew):
            return ToolCallDelta(index=place, function=CalledFunction(arguments=change.delta))
        return None

    def _chunk(self, choice: ChatChunkChoice) -> bytes:
        return sse_event(self._make_chunk(choices=[choice], usage=self._tally.in_chunk()))
