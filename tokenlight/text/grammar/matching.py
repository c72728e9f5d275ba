# SPDX-License-Identifier: Apache-2.0
"""Rules against one model's vocabulary: which tokens may come next.

Compiling happens on a thread of its own, once per rules; a request gets a copy. Nothing here raises
for what a user wrote: rules that fail late leave only the end of the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from tokenlight.base.log import event, get_log
from tokenlight.text.grammar.check import LIMITS
from tokenlight.text.grammar.digits import DigitRun, leading_digits
from tokenlight.text.tokenizer import Tokenizer

_log = get_log("grammar")

_MAX_CACHED = 64
_MAX_CHOICES = 256
"""Kept per vocabulary: a few MB."""


class Grammars:
    """Compiles rules for one vocabulary. `compile` is called on one thread."""

    def __init__(
        self, load_tokenizer: Callable[[], Tokenizer], *, vocab_size: int | None = None
    ) -> None:
        """Nothing is loaded yet.

        Args:
            load_tokenizer: called on the compiling thread, when the first rules come.
            vocab_size: tokens that the model can say, where its tokenizer may have more; Gemma 3's
                has one for images, which text models lack.
        """
        self._load_tokenizer = load_tokenizer
        self._vocab_size = vocab_size
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._vocabulary: Vocabulary | None = None
        self._compiled: OrderedDict[str, Future[Rules]] = OrderedDict()

    def compile(self, rules: str) -> Future[Rules]:
        """The compiled rules, sooner or later."""
        found = self._compiled.pop(rules, None)
        if found is None or (found.done() and found.exception() is not None):
            found = self._threads.submit(self._compile, rules)
        self._compiled[rules] = found
        if len(self._compiled) > _MAX_CACHED:
            self._compiled.popitem(last=False)
        return found

    def _compile(self, rules: str) -> Rules:
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self._load_tokenizer(), self._vocab_size)
        grammar = LLMatcher.grammar_from_lark(rules)
        matcher = LLMatcher(self._vocabulary.tokens, grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            _log.error(event("grammar_failed", num_chars=len(rules)))
        return Rules(self._vocabulary, matcher, is_json="%json" in rules)


@dataclass(frozen=True, slots=True)
class Choice:
    """What may come next, told by the side with fewer tokens."""

    token_ids: NDArray[np.intp]
    are_allowed: bool
    """Whether these are all that may come, or all that may not."""


class Vocabulary:
    """A tokenizer as llguidance wants it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int | None = None) -> None:
        self._tokenizer = tokenizer
        self.is_tokenizer_wrapper = True
        num_tokens = min(tokenizer.vocab_size, vocab_size or tokenizer.vocab_size)
        self.eos_token_ids = [i for i in tokenizer.eos_token_ids if i < num_tokens]
        if not self.eos_token_ids:
            raise ValueError("the model has no token that ends an answer, which rules need")
        self.eos_token_id = self.eos_token_ids[0]
        self.bos_token_id = tokenizer.bos_token_id
        # Tokens without bytes must not look like one another's beginnings.
        self.token_bytes = [tokenizer.token_bytes(i) for i in range(num_tokens)]
        self.all_words = _as_words(np.ones(num_tokens, np.bool_))
        self._digits = np.fromiter(map(leading_digits, self.token_bytes), np.int32)
        self._most_digits = int(self._digits.max())
        self._words_of_digits: dict[int, NDArray[np.uint32]] = {}
        eos = np.array(self.eos_token_ids)
        self.only_eos = Choice(eos, are_allowed=True)
        self.all_but_eos = Choice(eos, are_allowed=False)
        self._choices: dict[bytes, Choice] = {}
        self.special_token_ids = [i for i in range(num_tokens) if tokenizer.is_special(i)]
        self.tokens = LLTokenizer(
            TokenizerWrapper(_Wrapped(self)), n_vocab=num_tokens, eos_token=self.eos_token_ids
        )

    def words_of_digits(self, least: int) -> NDArray[np.uint32] | None:
        """The tokens that begin with at least so many digits; None where there are none."""
        if least > self._most_digits:
            return None
        if least not in self._words_of_digits:
            self._words_of_digits[least] = _as_words(self._digits >= least)
        return self._words_of_digits[least]

    def choice(self, words: NDArray[np.uint32]) -> Choice:
        """A mask as tokens. States repeat, that of a string above all: found masks are kept."""
        mask = words.tobytes()
        found = self._choices.get(mask)
        if found is None:
            found = self._choices[mask] = self._read(words)
            if len(self._choices) > _MAX_CHOICES:
                del self._choices[next(iter(self._choices))]
        return found

    def _read(self, words: NDArray[np.uint32]) -> Choice:
        at = np.flatnonzero(words)
        if len(at) == 0:
            return self.only_eos
        if len(at) * 2 <= len(words):
            return Choice(_places(words, at), are_allowed=True)
        words = ~words & self.all_words
        return Choice(_places(words, np.flatnonzero(words)), are_allowed=False)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=False, add_bos=False)


class _Wrapped:
    """The names that llguidance looks for."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_token_id
        self.bos_token_id = vocabulary.bos_token_id
        self.tokens = vocabulary.token_bytes
        self.special_token_ids = vocabulary.special_token_ids
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


class Rules:
    """Compiled; `begin` makes the matcher of one answer."""

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher, *, is_json: bool) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._is_json = is_json

    def begin(self, *, after: str) -> AnswerMatcher:
        matcher = self._matcher.deep_copy()
        return AnswerMatcher(self._vocabulary, matcher, after=after.encode(), is_json=self._is_json)


class AnswerMatcher:
    """Where one answer is in its rules. Until `after` has been said it is free, but cannot end."""

    def __init__(
        self, vocabulary: Vocabulary, matcher: LLMatcher, *, after: bytes, is_json: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._after = after
        self._is_json = is_json
        self._said: list[int] = []
        self._bits = allocate_token_bitmask(1, len(vocabulary.token_bytes))
        self._begin()

    def _begin(self) -> None:
        self._tail = b""
        self._is_free = bool(self._after)
        self._digits = DigitRun() if self._is_json else None
        self._forced: list[int] | None = None

    @property
    def vocab_size(self) -> int:
        """Tokens that the tokenizer knows; the model may have more."""
        return len(self._vocabulary.token_bytes)

    @property
    def num_tokens(self) -> int:
        """Said so far."""
        return len(self._said)

    def forced(self) -> list[int]:
        """The tokens that must come next, one after the other: the rules leave one text.

        Of the ways to cut that text into tokens it is the tokenizer's own.
        """
        if self._forced is None:
            is_open = not self._is_free and not self._matcher.is_stopped()
            self._forced = self._matcher.compute_ff_tokens() if is_open else []
        return self._forced

    def choice(self) -> Choice:
        """Which of the vocabulary's tokens may come next; at least one."""
        if self._is_free:
            return self._vocabulary.all_but_eos
        if forced := self.forced():
            return Choice(np.array(forced[:1]), are_allowed=True)
        if self._matcher.is_stopped():
            return self._vocabulary.only_eos
        fill_next_token_bitmask(self._matcher, self._bits)
        words = self._bits.view(np.uint32)[0]
        if self._digits is not None and (room := self._digits.room) is not None:
            too_long = self._vocabulary.words_of_digits(room + 1)
            if too_long is not None:
                ended = words & ~too_long
                words = ended if ended.any() else words
        return self._vocabulary.choice(words)

    def allowed(self) -> NDArray[np.bool_]:
        """The choice, spread over the vocabulary."""
        choice = self.choice()
        allowed = np.full(len(self._vocabulary.token_bytes), not choice.are_allowed)
        allowed[choice.token_ids] = choice.are_allowed
        return allowed

    def say(self, token_id: int) -> None:
        """A token was chosen."""
        self._said.append(token_id)
        forced = self.forced()
        # A run that is forced is cut into tokens once.
        self._forced = forced[1:] or None if forced[:1] == [token_id] else None
        text = self._vocabulary.token_bytes[token_id]
        if self._is_free:
            self._tail += text
            self._is_free = self._after not in self._tail
            self._tail = self._tail[-len(self._after) :]
        elif token_id not in self._vocabulary.eos_token_ids and not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)
            if self._digits is not None:
                self._digits.say(text)

    def keep(self, num_tokens: int) -> None:
        """Take back all but the first `num_tokens`: their step was never committed."""
        said, self._said = self._said[:num_tokens], []
        self._matcher.reset()
        self._begin()
        for token_id in said:
            self.say(token_id)


def _as_words(flags: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """One bit each, as llguidance has its masks."""
    padded = np.zeros(-(-len(flags) // 32) * 32, np.bool_)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view(np.uint32)


def _places(words: NDArray[np.uint32], at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of the bits that are set, all of them in the words `at`."""
    places = np.flatnonzero(np.unpackbits(words[at].view(np.uint8), bitorder="little"))
    found: NDArray[np.intp] = at[places >> 5] * 32 + (places & 31)
    return found
