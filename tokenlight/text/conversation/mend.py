# SPDX-License-Identifier: Apache-2.0
"""Histories as clients really send them, made sound. Nothing here refuses, and no turn is lost.

What is done depends on the turns before only, so that a turn once sent renders the same when more
follow it:

    code              what came                               what becomes of it
    missing_call_id   a call, or a result, without an id      a call is numbered; a result goes to
                                                              the oldest open call (of its tool)
    duplicate_call_id a call whose id an earlier one had      it is renamed ID#2, ID#3 ...; results
                                                              for ID go to the oldest open of them
    orphan_result     a result that no open call waits for    a user's turn that quotes it
    nameless_call     a call without a tool's name            it is a call of `unknown`
    empty_turn        a turn without any part                 it has an empty text
    broken_arguments  arguments that are no JSON object       kept; `arguments.py` says how they
                                                              reach the template

A call that never got its result stays as it is: the user interrupted, and the model may know.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec

from tokenlight.text.conversation.arguments import spelled_object
from tokenlight.text.conversation.turns import (
    Conversation,
    Part,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)

NAMELESS = "unknown"


def mend(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """The sound conversation, and how often each code of the table above was applied."""
    mending = _Mending()
    turns = tuple(made for turn in conversation.turns for made in mending.turn(turn))
    return msgspec.structs.replace(conversation, turns=turns), mending.notes


class _Mending:
    def __init__(self) -> None:
        self.notes: Counter[str] = Counter()
        self._num_calls = 0
        self._used: set[str] = set()
        # Open calls in order: the id that the client knows, and the call as we renamed it.
        self._open: list[tuple[str, ToolCall]] = []

    def turn(self, turn: Turn) -> list[Turn]:
        if not turn.parts:
            self.notes["empty_turn"] += 1
            return [Turn(turn.role, (Text(""),))]
        if turn.role == "assistant":
            return [Turn(turn.role, tuple(self._assistant_part(part) for part in turn.parts))]
        made: list[Turn] = []
        for part in turn.parts:
            role: Role = turn.role
            if isinstance(part, ToolResult):
                role, part = self._result(part)
            # A run of texts stays one turn; each result is a turn of its own.
            if made and role != "tool" and made[-1].role == role:
                made[-1] = Turn(role, (*made[-1].parts, part))
            else:
                made.append(Turn(role, (part,)))
        return made

    def _assistant_part(self, part: Part) -> Part:
        if not isinstance(part, ToolCall):
            return part
        self._num_calls += 1
        id, name = part.id, part.name
        if not name:
            self.notes["nameless_call"] += 1
            name = NAMELESS
        if not id:
            self.notes["missing_call_id"] += 1
            id = f"call_{self._num_calls}"
        known_as = id
        if id in self._used:
            self.notes["duplicate_call_id"] += 1
            id = next(made for n in count(2) if (made := f"{known_as}#{n}") not in self._used)
        self._used.add(id)
        if spelled_object(part.arguments) is None:
            self.notes["broken_arguments"] += 1
        call = ToolCall(id, name, part.arguments)
        self._open.append((known_as, call))
        return call

    def _result(self, result: ToolResult) -> tuple[Role, Part]:
        for place, (known_as, call) in enumerate(self._open):
            if result.call_id == known_as or (
                not result.call_id and result.name in ("", call.name)
            ):
                if not result.call_id:
                    self.notes["missing_call_id"] += 1
                del self._open[place]
                return "tool", ToolResult(call.id, result.text, call.name)
        self.notes["orphan_result"] += 1
        name = f" of {result.name}" if result.name else ""
        return "user", Text(f"A tool's result{name}, whose call is not known:\n{result.text}")
