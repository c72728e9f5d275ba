# SPDX-License-Identifier: Apache-2.0
"""Stop strings in streamed text: what may yet become one is held back.

How the text is cut into pushes changes nothing.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Stopped(NamedTuple):
    """What a push gives: text to deliver, and the stop string that ended it, if one did."""

    text: str
    matched: str | None


class StopStrings:
    """Looks for the first stop string: the one that is complete first; of two at once, the longer.

    An Aho-Corasick automaton: each character is looked at once, whatever the stops are.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        for stop in stops:
            self._add(stop)
        self._fallback = self._link()
        self._first = re.compile("|".join(map(re.escape, self._next[0])) or r"(?!)")
        self._state = 0
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> Stopped:
        """Add text. Once a stop string has matched, nothing more is delivered."""
        if self._matched is not None:
            return Stopped("", self._matched)
        seen = self._held + text
        position, state = len(self._held), self._state
        while position < len(seen):
            if state == 0:
                # Nothing is held: go on where a stop could start.
                start = self._first.search(seen, position)
                if start is None:
                    position = len(seen)
                    break
                position = start.start()
            state = self._step(state, seen[position])
            position += 1
            matched = self._match[state]
            if matched is not None:
                self._matched, self._held = matched, ""
                return Stopped(seen[: position - len(matched)], matched)
        self._state = state
        cut = len(seen) - self._depth[state]
        self._held = seen[cut:]
        return Stopped(seen[:cut], None)

    def flush(self) -> str:
        """End: what was held back has not become a stop string."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _add(self, stop: str) -> None:
        if not stop:
            return
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(None)
            state = self._next[state][character]
        self._match[state] = stop

    def _link(self) -> list[int]:
        """From each state to the one of its longest proper suffix that starts a stop."""
        fallback = [0] * len(self._next)
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            if self._match[state] is None:
                self._match[state] = self._match[fallback[state]]
            for character, following in self._next[state].items():
                suffix = fallback[state]
                while suffix and character not in self._next[suffix]:
                    suffix = fallback[suffix]
                fallback[following] = self._next[suffix].get(character, 0)
                waiting.append(following)
        return fallback

    def _step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)
