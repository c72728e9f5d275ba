# SPDX-License-Identifier: Apache-2.0
"""Token ids to deliverable text, up to the first stop string.

How many tokens are pushed at once changes neither the text nor where it ends.
"""

from collections.abc import Sequence

from tokenlight.text.detokenize import Detokenizer
from tokenlight.text.stop_strings import StopStrings
from tokenlight.text.tokenizer import Tokenizer
from tokenlight.wire import TokenLogprobs


class AnswerDecoder:
    """The text of one answer, and the ids and log-probabilities that belong to it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        keeps_stop: bool = False,
        with_special: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            tokenizer: the model's.
            stops: texts that end the answer.
            keeps_stop: whether the text keeps the stop string that ended it.
            with_special: whether the text shows tokens that steer the model.
        """
        self._detokenizer = Detokenizer(tokenizer, with_special=with_special)
        self._stops = StopStrings(stops) if stops else None
        self._keeps_stop = keeps_stop
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self.num_tokens = 0
        """Tokens decoded; when stopped, the one that completed the stop string is the last."""
        self.matched_stop: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self.matched_stop is not None

    def push(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs] = ()) -> str:
        """Add what was sampled; the text to deliver now. Ids behind a stop string are dropped."""
        if self._stops is None:
            self._note(token_ids, logprobs)
            return self._detokenizer.push(token_ids)
        text = ""
        # One by one: how many tokens a step delivers must not change where the answer ends.
        for place, token_id in enumerate(token_ids):
            self._note((token_id,), logprobs[place : place + 1])
            text += self._up_to_stop(self._detokenizer.push((token_id,)))
            if self.is_stopped:
                break
        return text

    def flush(self) -> str:
        """End, where no stop string did: what was held back."""
        text = self._up_to_stop(self._detokenizer.flush())
        if self._stops is not None and not self.is_stopped:
            text += self._stops.flush()
        return text

    def take(self) -> tuple[list[int], list[TokenLogprobs]]:
        """The ids since the last call, and what is told of them."""
        taken = self._ids, self._logprobs
        self._ids, self._logprobs = [], []
        return taken

    def _note(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> None:
        self._ids.extend(token_ids)
        self._logprobs.extend(logprobs)
        self.num_tokens += len(token_ids)

    def _up_to_stop(self, text: str) -> str:
        if self._stops is None:
            return text
        text, matched = self._stops.push(text)
        self.matched_stop = matched
        return text + matched if matched is not None and self._keeps_stop else text
