# SPDX-License-Identifier: Apache-2.0
"""Rules against one model's vocabulary: which tokens may come next.

Compiling happens on a thread of its own, once per rules; a request gets a copy. Nothing here raises
for what a user wrote: rules that fail late leave only the end of the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from tokenlight.base.log import event, get_log
from tokenlight.text.grammar.check import LIMITS
from tokenlight.text.tokenizer import Tokenizer

_log = get_log("grammar")

_MAX_CACHED = 64


class Grammars:
    """Compiles rules for one vocabulary. `compile` is called on one thread."""

    def __init__(self, load_tokenizer: Callable[[], Tokenizer]) -> None:
        """`load_tokenizer` is called on the compiling thread, when the first rules come."""
        self._load_tokenizer = load_tokenizer
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
            self._vocabulary = Vocabulary(self._load_tokenizer())
        grammar = LLMatcher.grammar_from_lark(rules)
        matcher = LLMatcher(self._vocabulary.tokens, grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            _log.error(event("grammar_failed", num_chars=len(rules)))
        return Rules(self._vocabulary, matcher)


class Vocabulary:
    """A tokenizer as llguidance wants it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.is_tokenizer_wrapper = True
        self.eos_token_ids = list(tokenizer.eos_token_ids)
        self.eos_token_id = self.eos_token_ids[0]
        self.bos_token_id = tokenizer.bos_token_id
        num_tokens = tokenizer.vocab_size
        # Tokens without bytes must not look like one another's beginnings.
        self.token_bytes = [tokenizer.token_bytes(i) for i in range(num_tokens)]
        self.special_token_ids = [i for i in range(num_tokens) if tokenizer.is_special(i)]
        self.tokens = LLTokenizer(
            TokenizerWrapper(_Wrapped(self)), n_vocab=num_tokens, eos_token=self.eos_token_ids
        )

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

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher

    def begin(self, *, after: str) -> AnswerMatcher:
        return AnswerMatcher(self._vocabulary, self._matcher.deep_copy(), after=after.encode())


class AnswerMatcher:
    """Where one answer is in its rules. Until `after` has been said it is free, but cannot end."""

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher, *, after: bytes) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._after = after
        self._said: list[int] = []
        self._tail = b""
        self._is_free = bool(after)
        self._bits = allocate_token_bitmask(1, len(vocabulary.token_bytes))

    @property
    def num_tokens(self) -> int:
        """Said so far."""
        return len(self._said)

    def allowed(self) -> NDArray[np.bool_]:
        """Which of the vocabulary's tokens may come next; at least one."""
        num_tokens = len(self._vocabulary.token_bytes)
        if self._is_free:
            allowed = np.ones(num_tokens, np.bool_)
            allowed[self._vocabulary.eos_token_ids] = False
            return allowed
        if not self._matcher.is_stopped():
            fill_next_token_bitmask(self._matcher, self._bits)
            bits = np.unpackbits(self._bits[0].view(np.uint8), bitorder="little")
            allowed = bits[:num_tokens].view(np.bool_)
            if allowed.any():
                return allowed
        allowed = np.zeros(num_tokens, np.bool_)
        allowed[self._vocabulary.eos_token_ids] = True
        return allowed

    def say(self, token_id: int) -> None:
        """A token was chosen."""
        self._said.append(token_id)
        if self._is_free:
            self._tail += self._vocabulary.token_bytes[token_id]
            self._is_free = self._after not in self._tail
            self._tail = self._tail[-len(self._after) :]
        elif token_id not in self._vocabulary.eos_token_ids and not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)

    def keep(self, num_tokens: int) -> None:
        """Take back all but the first `num_tokens`: their step was never committed."""
        said = self._said[:num_tokens]
        self._matcher.reset()
        self._said, self._tail, self._is_free = [], b"", bool(self._after)
        for token_id in said:
            self.say(token_id)
