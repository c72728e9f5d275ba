# SPDX-License-Identifier: Apache-2.0
"""Long texts in segments that are tokenised once: an agent's prompt is its last one and a bit more.

A text is cut where the ids on both sides do not depend on each other: before a special token, and
before a single blank between two ASCII letters, where all patterns of `pretokenizers.py` end a word
whether or not they see the other side, and so do SentencePiece's pieces. Where it is cut depends on
what stands before, so two texts with the same beginning have the same first segments.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from tokenizers import AddedToken

MIN_SEGMENT_CHARS = 1024
MAX_CACHED_CHARS = 4 << 20

_NEVER = re.compile(r"(?!)")
_BETWEEN_WORDS = re.compile(r" (?<=[A-Za-z] )[A-Za-z]")
_WORD_AND_BLANK = re.compile(r"[A-Za-z] ")


class Cuts:
    """Where a text may be cut."""

    def __init__(self, added: Sequence[AddedToken], *, cuts_words: bool) -> None:
        """Find what the vocabulary allows.

        Args:
            added: all tokens that are looked for in the text itself.
            cuts_words: whether a word always ends before a blank between two letters.
        """
        texts = _clean_starts(added)
        self._special = re.compile(_any_of(texts)) if texts else _NEVER
        reach_over = (t.lstrip or t.single_word or _WORD_AND_BLANK.search(t.content) for t in added)
        self._words = _BETWEEN_WORDS if cuts_words and not any(reach_over) else _NEVER

    def segments(self, text: str) -> list[str]:
        """Cut at the first place behind each MIN_SEGMENT_CHARS characters."""
        segments, start, word = [], 0, 0
        while (least := start + MIN_SEGMENT_CHARS) < len(text):
            if word < least:
                found = self._words.search(text, least)
                word = len(text) if found is None else found.start()
            special = self._special.search(text, least, word)
            cut = word if special is None else special.start()
            segments.append(text[start:cut])
            start = cut
        return [*segments, text[start:]] if start < len(text) else segments


class SegmentCache:
    """The ids of segments, the least recently used forgotten first. Safe to use from threads."""

    def __init__(self, cuts: Cuts, encode: Callable[[list[str]], Iterable[Sequence[int]]]) -> None:
        self._cuts = cuts
        self._encode = encode
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._num_chars = 0
        self._lock = Lock()

    def encode(self, text: str) -> list[int]:
        segments = self._cuts.segments(text)
        with self._lock:
            found = {segment: self._ids[segment] for segment in segments if segment in self._ids}
        missing = [segment for segment in dict.fromkeys(segments) if segment not in found]
        if missing:
            encoded = (array("i", ids) for ids in self._encode(missing))
            found.update(zip(missing, encoded, strict=True))
        with self._lock:
            for segment, ids in found.items():
                self._keep(segment, ids)
        joined: array[int] = array("i")
        for segment in segments:
            joined += found[segment]
        return joined.tolist()

    def _keep(self, segment: str, ids: "array[int]") -> None:
        if segment in self._ids:
            self._ids.move_to_end(segment)
            return
        self._ids[segment] = ids
        self._num_chars += len(segment)
        while self._num_chars > MAX_CACHED_CHARS:
            forgotten, _ = self._ids.popitem(last=False)
            self._num_chars -= len(forgotten)


def _clean_starts(added: Sequence[AddedToken]) -> set[str]:
    """Special tokens that are found wherever their text stands, and take nothing to their left."""
    contents = [token.content for token in added]
    joined = "\0".join(contents)
    ends = {text[cut:] for text in contents for cut in range(1, len(text))}
    return {
        token.content
        for token in added
        if token.special and not (token.lstrip or token.single_word or token.normalized)
        # Else another token that stands there may be found instead, or one that begins before.
        if joined.count(token.content) == 1
        if not any(token.content[:cut] in ends for cut in range(1, len(token.content)))
    }


def _any_of(texts: set[str]) -> str:
    """A pattern that matches where one of `texts` begins, in one step per character."""
    if "" in texts:
        return ""
    rests: dict[str, set[str]] = {}
    for text in texts:
        rests.setdefault(text[0], set()).add(text[1:])
    ways = [re.escape(first) + _any_of(rest) for first, rest in sorted(rests.items())]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
