# SPDX-License-Identifier: Apache-2.0
"""The leading rank's model: what is asked of it is asked of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import Step
from tokenlight.runner.ranks.collect import collect
from tokenlight.runner.ranks.groups import Shares, share_out
from tokenlight.runner.ranks.lost import in_step
from tokenlight.runner.ranks.message import Message, Verb, Words, encode, pack
from tokenlight.runner.ranks.steps import RankSteps

_NO_PATCHES = np.zeros((0, 3), np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Ranks that have the same requests, as the leading rank must know them."""

    first_ranks: Sequence[int]
    num_slots: int
    """Of each group."""


class LeadingModel:
    """As the model, of the requests of all groups; each call is told to the other ranks first."""

    def __init__(
        self,
        model: CompiledModel,
        steps: RankSteps,
        groups: Groups,
        tell: Callable[[Words], None],
    ) -> None:
        self._model = model
        self._steps = steps
        self._groups = groups
        self._tell = tell
        self._patches: list[NDArray[np.int32]] = []
        self._shares = Shares((), np.zeros(1, np.int32))

    def note(self, patches: NDArray[np.int32]) -> None:
        """What a plan changed in the block tables, [P, 4]; to be called with each plan's."""
        if len(patches):
            self._patches.append(patches[:, 1:].copy())

    def __call__(self, step: Step) -> Tensor:
        """Logits of the step's sampled rows. Its table is not read, nor its cache."""
        x_TD = self._run(Verb.STEP, step)
        return self._logits(x_TD, self._shares.rows(step.sampled_rows.numpy()))

    def hidden(self, step: Step) -> Tensor:
        """What the last layer gives for the tokens of this rank's group: for `logits` alone."""
        return self._run(Verb.HIDDEN, step)

    def logits(self, x_TD: Tensor, rows_S: Tensor) -> Tensor:
        """Of ascending rows of the last step, whichever group's they are."""
        rows = self._shares.rows(rows_S.numpy())
        self._say([Message(verb=Verb.LOGITS, sampled_rows=each) for each in rows])
        return self._logits(x_TD, rows)

    def _run(self, verb: Verb, step: Step) -> Tensor:
        patches = np.concatenate(self._patches) if self._patches else _NO_PATCHES
        self._patches.clear()
        groups = self._groups
        self._shares = share_out(
            verb,
            step,
            patches,
            num_groups=len(groups.first_ranks),
            num_slots=groups.num_slots,
        )
        with in_step():
            self._say(self._shares.messages)
            return self._model.hidden(self._steps.make(self._shares.messages[0]))

    def _say(self, messages: Sequence[Message]) -> None:
        self._tell(pack([encode(message) for message in messages]))

    def _logits(self, x_TD: Tensor, rows: Sequence[Words]) -> Tensor:
        with in_step():
            own_SV = self._model.logits(x_TD, torch.from_numpy(rows[0]))
            return collect(own_SV, [len(each) for each in rows], self._groups.first_ranks)
