# SPDX-License-Identifier: Apache-2.0
"""What the readers say, turned into events: neighbours joined, calls numbered and named.

While a call is only a candidate its events are held; they are released when it is certain, or
dropped when it turns out to be text.
"""

import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from tokenlight.text.parsing.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Content,
    Event,
    ParseFailed,
    Reasoning,
)
from tokenlight.text.parsing.format import IdStyle
from tokenlight.text.parsing.source import Malformed, Reason

Functions: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Tool names, each with the JSON Schema of its arguments."""

_NAMESPACE = "functions."
"""What some models put before every tool's name."""

_ALPHANUMERIC = string.ascii_letters + string.digits


def make_id(style: IdStyle, name: str, index: int) -> str:
    """A tool call's id, where the wire has none; see `ToolFormat.id_style`."""
    if style == "indexed":
        return f"functions.{name}:{index}"
    if style == "nine":
        return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"


def is_object(text: str) -> bool:
    """Whether `text` is one JSON object, by the letter of the standard."""
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


class Output:
    """Events so far that are not yet handed out, and the one call that may be open."""

    def __init__(
        self,
        *,
        parser: str,
        functions: Functions,
        id_style: IdStyle,
        id_source: Callable[[IdStyle, str, int], str] = make_id,
    ) -> None:
        self.functions = functions
        self.num_calls = 0
        self._parser = parser
        self._id_style = id_style
        self._id_source = id_source
        self._events: list[Event] = []
        self._held: list[Event] | None = None
        self._held_from = 0
        self._releases_at_start = False
        self._kind: Literal["content", "reasoning", "arguments"] = "content"
        self._parts: list[str] = []
        self._blank: list[str] | None = []  # leading white space, kept until something follows it
        self._thought: list[str] | None = []  # the same for reasoning
        self._has_said = False
        self._ids: set[str] = set()
        self._call: list[str] | None = None  # the open call's arguments
        self._has_arguments = False

    # ---- text ------------------------------------------------------------------------------------

    @property
    def is_at_start(self) -> bool:
        """Whether no content but white space came since the output's start, or the last call."""
        return self._blank is not None

    @property
    def is_at_reasoning_start(self) -> bool:
        return self._thought is not None

    def content(self, text: str) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text = "".join(self._blank)
            self._blank = None
            self._has_said = True
        self._say("content", text)

    def reasoning(self, text: str) -> None:
        if self._thought is not None:
            self._thought.append(text)
            if not text or text.isspace():
                return
            text = "".join(self._thought)
            self._thought = None
            self._has_said = True
        self._say("reasoning", text)

    def end_reasoning(self) -> None:
        self._thought = []
        self._blank = []

    def finish(self) -> None:
        """The output's end: white space that is all there was is content, any other is dropped."""
        if self._blank is not None and not self._has_said:
            self._say("content", "".join(self._blank))
        self._flush()

    def _say(self, kind: Literal["content", "reasoning", "arguments"], text: str) -> None:
        if not text:
            return
        if kind != self._kind:
            self._flush()
            self._kind = kind
        self._parts.append(text)

    def _flush(self) -> None:
        if not self._parts:
            return
        text = "".join(self._parts)
        self._parts.clear()
        if self._kind == "content":
            self._emit(Content(text))
        elif self._kind == "reasoning":
            self._emit(Reasoning(text))
        else:
            self._emit(ArgumentsDelta(self.num_calls - 1, text))

    def _emit(self, event: Event) -> None:
        (self._events if self._held is None else self._held).append(event)

    def drain(self) -> list[Event]:
        """The events that are certain, handed out once."""
        self._flush()
        events = self._events
        self._events = []
        return events

    # ---- calls -----------------------------------------------------------------------------------

    @property
    def has_open_call(self) -> bool:
        return self._call is not None

    @property
    def has_whole_arguments(self) -> bool:
        return self._call is not None and self._has_arguments

    def schema(self, name: str) -> Mapping[str, Any]:
        return self.functions.get(name, {})

    def start_call(self, name: str, id: str = "") -> None:
        """Begin a call. While held, a name that is no tool's makes the candidate plain text."""
        if name not in self.functions and name.removeprefix(_NAMESPACE) in self.functions:
            name = name.removeprefix(_NAMESPACE)
        if self._held is not None and name not in self.functions:
            raise Malformed("not_a_call")
        if self._held is not None and self._releases_at_start:
            self.release()
        self._flush()
        index = self.num_calls
        self.num_calls += 1
        self._blank = []
        self._has_said = True
        self._call = []
        self._has_arguments = False
        self._emit(CallStarted(index, self._own_id(id, name, index), name))

    def _own_id(self, id: str, name: str, index: int) -> str:
        """The wire's id where the format has ids and this one is new, else one of our own."""
        is_usable = {
            "call": False,  # what looks like an id there is the model's whim
            "nine": len(id) == 9 and id.isalnum(),
            "indexed": bool(id),
        }[self._id_style]
        if not is_usable or id in self._ids:
            id = self._id_source(self._id_style, name, index)
        self._ids.add(id)
        return id

    def arguments(self, text: str) -> None:
        if self._call is not None and text:
            self._call.append(text)
            self._say("arguments", text)

    def end_arguments(self) -> None:
        """The arguments are whole, whether or not the rest of the call's wire form follows."""
        if self._call is not None and not any(map(str.strip, self._call)):
            self.arguments("{}")
        self._has_arguments = True

    def end_call(self) -> None:
        """End the open call; what is not one JSON object is a failure."""
        if self._call is None:
            return
        is_complete = self._has_arguments and is_object("".join(self._call))
        self._call = None
        self._flush()
        self._emit(CallEnded(self.num_calls - 1, is_complete))
        if self._has_arguments and not is_complete:
            self._emit(ParseFailed(self._parser, "invalid_arguments", "", self.num_calls - 1))

    def break_call(self, reason: Reason, *, is_cut: bool) -> None:
        """End the open call where its wire form breaks off; `is_cut`: by no fault of the model."""
        if self._call is None or self._has_arguments:
            self.end_call()
            return
        self._call = None
        self._flush()
        index = self.num_calls - 1
        self._emit(CallEnded(index, is_complete=False))
        if not is_cut:
            self.fail(reason, index=index)

    def fail(self, reason: Reason, *, text: str = "", index: int | None = None) -> None:
        self._flush()
        self._blank = None
        self._has_said = True
        self._emit(ParseFailed(self._parser, reason, text, index))

    # ---- candidates ------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def hold(self, *, releases_at_start: bool) -> None:
        """Hold events until a known tool's call starts, or until `release` or `drop`."""
        self._flush()
        self._held = []
        self._held_from = self.num_calls
        self._releases_at_start = releases_at_start

    def release(self) -> None:
        if self._held is not None:
            self._flush()
            self._events.extend(self._held)
            self._held = None

    def drop(self) -> None:
        """Forget the candidate: it is text after all."""
        self._parts.clear()
        self._ids -= {event.id for event in self._held or () if isinstance(event, CallStarted)}
        self._held = None
        self._call = None
        self.num_calls = self._held_from

    @property
    def is_sound(self) -> bool:
        """Whether the held calls are whole, each of them, and there is one."""
        self._flush()
        held = self._held or []
        ended = [event for event in held if isinstance(event, CallEnded)]
        return (
            self._call is None
            and bool(ended)
            and all(event.is_complete for event in ended)
            and not any(isinstance(event, ParseFailed) for event in held)
        )
