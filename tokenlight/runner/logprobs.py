# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of sampled tokens and of the likeliest ones, for requests that ask.

They are the model's own: read from the logits before biases, penalties, temperature and filters.

Shapes: S sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.wire import TokenLogprobs


def read_logprobs(logits_SV: Tensor, wanted: Mapping[int, int]) -> dict[int, Tensor]:
    """Log-softmax of each row that is wanted; a copy, so that the logits may be changed.

    Args:
        logits_SV: untouched logits.
        wanted: row -> how many of the likeliest tokens to tell.
    """
    # Row by row: what shares the call must not change a sum's order.
    return {row: torch.log_softmax(logits_SV[row], 0) for row in wanted}


def pick_logprobs(
    read: Mapping[int, Tensor], wanted: Mapping[int, int], token_ids: NDArray[np.int32]
) -> dict[int, TokenLogprobs]:
    """Row -> what is told of its token, once the tokens are chosen."""
    picked = {}
    for row, logprobs_V in read.items():
        top = torch.topk(logprobs_V, min(wanted[row], len(logprobs_V)))
        picked[row] = TokenLogprobs(
            float(logprobs_V[int(token_ids[row])]), top.indices.tolist(), top.values.tolist()
        )
    return picked
