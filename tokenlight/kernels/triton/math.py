# SPDX-License-Identifier: Apache-2.0
"""Functions that Triton kernels of several ops share, so that they round alike."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """In float32; near 0 a series, where the quotient would lose digits."""
    t = tl.exp(-2.0 * tl.abs(x))
    quotient = (1.0 - t) / (1.0 + t)
    square = x * x
    series = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15 - square * (17.0 / 315))))
    return tl.where(tl.abs(x) < 0.1, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def softmax_merge(m_a, m_b):
    """The maximum of two partial softmaxes, and what each one's sums are multiplied by."""
    m = tl.maximum(m_a, m_b)
    finite = tl.where(m == float("-inf"), 0.0, m)
    return m, tl.exp2(m_a - finite), tl.exp2(m_b - finite)


@triton.jit
def gate(x, ACT: tl.constexpr):
    """What a feed-forward layer multiplies by, in float32: SiLU, or GELU in its tanh form."""
    if ACT == "silu":
        return x * sigmoid(x)
    # (1 + tanh(y)) / 2 is the sigmoid of 2 y.
    return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def turn(x, partner, cos, sin):
    """One coordinate of a rotation; `sin` has the sign of the partner's term. Rounds as written."""
    return tl.fma(x, cos, partner * sin)


@triton.jit
def normalize(x, gain, width, eps):
    """A row of float32, 0 beyond its width, to unit root-mean-square and times the gain."""
    return x * tl.rsqrt(tl.sum(x * x, 0) / width + eps) * gain
