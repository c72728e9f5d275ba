# SPDX-License-Identifier: Apache-2.0
"""How the variants of rotary positions stretch their frequencies for contexts longer than trained.

Each is a pure function of the head dimension and config.json's rope parameters. "linear" and
"dynamic" are of the community, "yarn" is arXiv 2309.00071, "llama3" of Meta's reference code.
"""

from collections.abc import Callable, Mapping
from math import ceil, floor, log, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor

Parameters = Mapping[str, Any]


class Scaled(NamedTuple):
    frequencies: Tensor
    """float32 [d / 2], in radians per position."""
    magnitude: float
    """Multiplies cosines and sines."""


def scaled_frequencies(head_dim: int, parameters: Parameters) -> Scaled:
    """The frequencies of `parameters["rope_type"]`."""
    return VARIANTS[parameters["rope_type"]](head_dim, parameters)


def _plain(head_dim: int, theta: float) -> Tensor:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    return 1.0 / (theta**exponents)


def _default(head_dim: int, parameters: Parameters) -> Scaled:
    return Scaled(_plain(head_dim, parameters["rope_theta"]), 1.0)


def _linear(head_dim: int, parameters: Parameters) -> Scaled:
    return Scaled(_plain(head_dim, parameters["rope_theta"]) / parameters["factor"], 1.0)


def _dynamic(head_dim: int, parameters: Parameters) -> Scaled:
    """Fixed at the base of the full scaled context.

    Growing the base with the longest token seen would make a cached key depend on what came after
    it, and keys of one request disagree on the base.
    """
    factor = parameters["factor"]
    # (factor * tokens / original) - (factor - 1), where tokens = factor * original
    growth = factor * factor - (factor - 1)
    theta = parameters["rope_theta"] * growth ** (head_dim / (head_dim - 2))
    return Scaled(_plain(head_dim, theta), 1.0)


def _llama3(head_dim: int, parameters: Parameters) -> Scaled:
    """Long waves are slowed by the factor, short ones kept, those between blended."""
    plain = _plain(head_dim, parameters["rope_theta"])
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] / (2 * pi / plain)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return Scaled((1 - kept) * plain / parameters["factor"] + kept * plain, 1.0)


def _yarn(head_dim: int, parameters: Parameters) -> Scaled:
    """Dimensions that turn often in the trained context are kept, those that turn rarely slowed."""
    theta, factor = parameters["rope_theta"], parameters["factor"]
    first = _dimension_of(parameters.get("beta_fast", 32), head_dim, parameters)
    last = _dimension_of(parameters.get("beta_slow", 1), head_dim, parameters)
    if parameters["truncate"]:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first or 0.001
    steps = torch.arange(head_dim // 2, dtype=torch.float32)
    kept = 1 - ((steps - first) / width).clamp(0, 1)
    plain = _plain(head_dim, theta)
    frequencies = plain / factor * (1 - kept) + plain * kept
    return Scaled(frequencies, _yarn_magnitude(parameters))


def _dimension_of(num_turns: float, head_dim: int, parameters: Parameters) -> float:
    """The dimension whose wave turns `num_turns` times within the trained context."""
    tokens = parameters["original_max_position_embeddings"]
    return head_dim * log(tokens / (num_turns * 2 * pi)) / (2 * log(parameters["rope_theta"]))


def _yarn_magnitude(parameters: Parameters) -> float:
    if "attention_factor" in parameters:
        return float(parameters["attention_factor"])

    def growth(weight: float) -> float:
        factor = parameters["factor"]
        return 0.1 * weight * log(factor) + 1.0 if factor > 1 else 1.0

    if "mscale" in parameters and "mscale_all_dim" in parameters:
        return growth(parameters["mscale"]) / growth(parameters["mscale_all_dim"])
    return growth(1.0)


VARIANTS: Mapping[str, Callable[[int, Parameters], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    # The factors come with the weights.
    "factors": _default,
}
