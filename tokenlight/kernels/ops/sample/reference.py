# SPDX-License-Identifier: Apache-2.0
import math

import torch
from torch import Tensor

from tokenlight.kernels.contract import REFERENCE
from tokenlight.kernels.ops.sample.contract import sample

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    """SplitMix64's finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that a request with this seed draws at this position."""
    z = _mix((_mix(seed & _MASK) + position * _GOLDEN) & _MASK)
    return (z >> 11) * 2.0**-53


@sample.implement("reference", device="any", rank=REFERENCE)
def reference(
    logits_SV: Tensor,
    temperature_S: Tensor,
    top_k_S: Tensor,
    top_p_S: Tensor,
    min_p_S: Tensor,
    seeds_S: Tensor,
    positions_S: Tensor,
) -> Tensor:
    ids = [
        _sample_row(logits_SV[i], temperature, top_k, top_p, min_p, uniform(seed, position))
        for i, (temperature, top_k, top_p, min_p, seed, position) in enumerate(
            zip(
                temperature_S.tolist(),
                top_k_S.tolist(),
                top_p_S.tolist(),
                min_p_S.tolist(),
                seeds_S.tolist(),
                positions_S.tolist(),
                strict=True,
            )
        )
    ]
    return torch.tensor(ids, dtype=torch.int32, device=logits_SV.device)


def _sample_row(
    logits_V: Tensor, temperature: float, top_k: int, top_p: float, min_p: float, u: float
) -> int:
    wide_V = logits_V.double().nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    sorted_V, ids_V = wide_V.sort(descending=True, stable=True)
    if temperature == 0 or math.isinf(float(sorted_V[0])):
        return int(ids_V[0])
    p_V = ((sorted_V - sorted_V[0]) / temperature).exp()
    if top_k:
        p_V = p_V[:top_k]
    if top_p < 1:
        before_V = p_V.cumsum(0) - p_V
        p_V = p_V[before_V < top_p * p_V.sum()]
    p_V = p_V[p_V >= min_p * p_V[0]]
    sums_V = p_V.cumsum(0)
    index = int(torch.searchsorted(sums_V, u * sums_V[-1], right=True))
    return int(ids_V[min(index, len(p_V) - 1)])
