# SPDX-License-Identifier: Apache-2.0
"""Long texts in segments that are tokenised once: an agent's prompt is its last one and a bit more.

A text is cut where the ids on both sides do not depend on each other: before a special token, and
before a single blank between two ASCII letters, where all patterns of `pretokenizers.py` end a word
whether or not they see the other side, and so do SentencePiece's pieces. Where it is cut depends on
what stands before, so two texts with the same beginning have the same first segments.

A turn's prompt begins with the turn's before, so whole texts are kept as well, with their ids: what
two texts have in common is then copied at once.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from tokenizers import AddedToken

MIN_SEGMENT_CHARS = 1024
MAX_CACHED_CHARS = 4 << 20
MAX_WHOLE_TOKENS = 1 << 19
"""Of all texts that are kept whole: 20 MB."""
MAX_WHOLES = 64
MIN_WHOLE_CHARS = 8 << 10

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
        self.reach_chars = max([2, *map(len, texts)])
        """Behind a cut, what may have decided on it."""
        self._special = re.compile(_any_of(texts)) if texts else _NEVER
        reach_over = (t.lstrip or t.single_word or _WORD_AND_BLANK.search(t.content) for t in added)
        self._words = _BETWEEN_WORDS if cuts_words and not any(reach_over) else _NEVER

    def segments(self, text: str, start: int = 0) -> list[str]:
        """Cut at the first place behind each MIN_SEGMENT_CHARS characters, from a cut on."""
        segments, word = [], 0
        while (least := start + MIN_SEGMENT_CHARS) < len(text):
            if word < least:
                found = self._words.search(text, least)
                word = len(text) if found is None else found.start()
            special = self._special.search(text, least, word)
            cut = word if special is None else special.start()
            segments.append(text[start:cut])
            start = cut
        return [*segments, text[start:]] if start < len(text) else segments


@dataclass(frozen=True, slots=True)
class Whole:
    """A text that was encoded, and where its segments end."""

    text: str
    ids: list[int]
    ends: list[tuple[int, int]]
    """Of each segment: characters, ids."""

    def num_common(self, text: str, reach_chars: int) -> int:
        """How many of its first segments are those of `text` too.

        Args:
            text: another one.
            reach_chars: so far behind a cut stands what decided on it.
        """
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high + 1) // 2
            end = self.ends[middle - 1][0] + reach_chars
            if end <= len(self.text) and text.startswith(self.text[:end]):
                low = middle
            else:
                high = middle - 1
        return low


class SegmentCache:
    """The ids of segments, the least recently used forgotten first. Safe to use from threads."""

    def __init__(self, cuts: Cuts, encode: Callable[[list[str]], Iterable[Sequence[int]]]) -> None:
        self._cuts = cuts
        self._encode = encode
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._num_chars = 0
        self._wholes: list[Whole] = []
        self._lock = Lock()

    def encode(self, text: str) -> list[int]:
        most, before = 0, None
        for whole in self._wholes:
            if (num_common := whole.num_common(text, self._cuts.reach_chars)) > most:
                most, before = num_common, whole
        num_chars, num_ids = before.ends[most - 1] if before else (0, 0)
        ids = before.ids[:num_ids] if before else []
        ends = before.ends[:most] if before else []
        segments = self._cuts.segments(text, num_chars)
        for segment, found in zip(segments, self._ids_of(segments), strict=True):
            ids += found
            num_chars += len(segment)
            ends.append((num_chars, len(ids)))
        if len(text) < MIN_WHOLE_CHARS:
            return ids
        self._keep_whole(Whole(text, ids, ends), instead_of=before)
        return ids.copy()

    def _ids_of(self, segments: Sequence[str]) -> "list[array[int]]":
        with self._lock:
            found = {segment: self._find(segment) for segment in segments}
        missing = [segment for segment, ids in found.items() if ids is None]
        if missing:
            made = [array("i", ids) for ids in self._encode(missing)]
            found.update(zip(missing, made, strict=True))
            with self._lock:
                for segment, new in zip(missing, made, strict=True):
                    self._keep(segment, new)
        return [ids for segment in segments if (ids := found[segment]) is not None]

    def _keep_whole(self, whole: Whole, *, instead_of: Whole | None) -> None:
        """As the newest; the text that it goes on from is its beginning and goes."""
        with self._lock:
            goes_on = instead_of is not None and whole.text.startswith(instead_of.text)
            kept = [one for one in self._wholes if not (goes_on and one is instead_of)]
            kept.append(whole)
            num_tokens = sum(len(one.ids) for one in kept)
            while num_tokens > MAX_WHOLE_TOKENS or len(kept) > MAX_WHOLES:
                num_tokens -= len(kept.pop(0).ids)
            self._wholes = kept

    def _find(self, segment: str) -> "array[int] | None":
        ids = self._ids.get(segment)
        if ids is not None:
            self._ids.move_to_end(segment)
        return ids

    def _keep(self, segment: str, ids: "array[int]") -> None:
        if segment in self._ids:
            return  # another thread was faster
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
