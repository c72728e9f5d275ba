# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from tokenlight.kernels.contract import op


@op
def sample(
    logits_SV: Tensor,
    temperature_S: Tensor,
    top_k_S: Tensor,
    top_p_S: Tensor,
    min_p_S: Tensor,
    seeds_S: Tensor,
    positions_S: Tensor,
) -> Tensor:
    """Choose a token per row.

    Shapes: S sampled rows, V vocabulary.

    Temperature 0 takes the largest logit, the lowest id among equals. Otherwise, with tokens in
    descending order of logit (lower id first among equals) and p the softmax of logits /
    temperature:

    1. top_k keeps the first k;
    2. top_p keeps, of those renormalised, the shortest prefix whose sum is at least top_p;
    3. min_p drops what has p < min_p * p of the first;
    4. of what is left, the first token whose running sum exceeds u times the total, where
       u = (mix(mix(seed) + position * 0x9E3779B97F4A7C15) >> 11) * 2^-53 and mix is the finaliser
       of SplitMix64, all modulo 2^64.

    Every filter keeps a prefix of the order and at least its first token. Steps 2 and 3 commute,
    since a prefix of both is the shorter one; so engines that apply min_p before top_p choose alike
    except for step 2's renormalisation.

    Args:
        logits_SV: float32, last dimension contiguous. NaN counts as minus infinity; a row without a
            finite logit gives 0.
        temperature_S: float32, at least 0.
        top_k_S: int32; 0 keeps all.
        top_p_S: float32 in (0, 1]; 1 keeps all.
        min_p_S: float32 in [0, 1]; 0 keeps all.
        seeds_S: int64.
        positions_S: int32; absolute position of the token being sampled, so that a preempted or
            batched request draws the same numbers.

    Returns:
        int32 [S].
    """
    raise NotImplementedError
