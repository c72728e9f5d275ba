# SPDX-License-Identifier: Apache-2.0
"""Rank 0's side: a model whose every call the other ranks make as well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.models import CompiledModel
from tokenlight.nn import Step
from tokenlight.runner.ranks.message import Message, Verb, Words, encode

_NO_PATCHES = np.zeros((0, 3), np.int32)


class LeadingModel:
    """As the model, but each call is told to the other ranks first: they have to take part."""

    def __init__(self, model: CompiledModel, tell: Callable[[Words], None]) -> None:
        self._model = model
        self._tell = tell
        self._patches: list[NDArray[np.int32]] = []

    def note(self, patches: NDArray[np.int32]) -> None:
        """What a plan changed in the block tables, [P, 4]; to be called with each plan's."""
        if len(patches):
            self._patches.append(patches[:, 1:].copy())

    def __call__(self, step: Step) -> Tensor:
        self._tell(self._of_step(Verb.STEP, step))
        return self._model(step)

    def hidden(self, step: Step) -> Tensor:
        self._tell(self._of_step(Verb.HIDDEN, step))
        return self._model.hidden(step)

    def logits(self, x_TD: Tensor, rows_S: Tensor) -> Tensor:
        self._tell(encode(Message(verb=Verb.LOGITS, sampled_rows=rows_S.numpy())))
        return self._model.logits(x_TD, rows_S)

    def _of_step(self, verb: Verb, step: Step) -> Words:
        patches = np.concatenate(self._patches) if self._patches else _NO_PATCHES
        self._patches.clear()
        return encode(
            Message(
                verb=verb,
                sampled_rows=step.sampled_rows.numpy(),
                token_ids=step.token_ids_T.numpy(),
                positions=step.positions_T.numpy(),
                kv_lens=step.kv_lens.numpy(),
                slots=step.slots.numpy(),
                query_starts=step.query_starts.numpy(),
                patches=patches,
            )
        )
