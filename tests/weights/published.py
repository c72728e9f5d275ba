# SPDX-License-Identifier: Apache-2.0
"""Matrices as quantized checkpoints publish them, and the numbers that they stand for.

Packed as each method's own description has it; the truth is its formula.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Published(NamedTuple):
    """Of one matrix: tensors by the name that follows the layer's, and float32 [n, k]."""

    tensors: dict[str, Tensor]
    numbers: Tensor


Publish = Callable[[Tensor], Published]


def fp8(rows: int, columns: int, *, name: str = "weight_scale_inv") -> Publish:
    """A scale per block of `rows` x `columns`; 0 for all. Scales are of 16 bits, as DeepSeek's."""

    def publish(weight: Tensor) -> Published:
        n, k = weight.shape
        height, width = rows or n, columns or k
        scales = torch.empty(-(-n // height), -(-k // width), dtype=torch.bfloat16)
        stored = torch.empty(n, k, dtype=torch.float8_e4m3fn)
        numbers = torch.empty(n, k)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                at = (slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width))
                scales[i, j] = weight[at].abs().max() / 448
                scale = float(scales[i, j])
                stored[at] = (weight[at] / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
                numbers[at] = stored[at].float() * scale
        shaped = scales.reshape(()) if not rows else scales
        return Published({"weight": stored, name: shaped}, numbers)

    return publish


class Groups(NamedTuple):
    """Numbers from 0 to 15, what is subtracted, the scales, and each column's group."""

    q: Tensor
    zeros: Tensor
    scales: Tensor
    group_of: Tensor

    @property
    def numbers(self) -> Tensor:
        whole = self.q.float() - self.zeros.float()[:, self.group_of]
        return whole * self.scales.float()[:, self.group_of]


def grouped(
    weight: Tensor, group: int, *, symmetric: bool, dtype: torch.dtype, scattered: bool = False
) -> Groups:
    n, k = weight.shape
    group = k if group == -1 else group
    group_of = torch.arange(k) // group
    if scattered:
        group_of = group_of[torch.randperm(k, generator=torch.Generator().manual_seed(k))]
    scales = torch.empty(n, k // group, dtype=dtype)
    zeros = torch.full((n, k // group), 8)
    q = torch.empty(n, k, dtype=torch.long)
    for g in range(k // group):
        columns = weight[:, group_of == g]
        low, high = columns.amin(1), columns.amax(1)
        scales[:, g] = (columns.abs().amax(1) / 7.5 if symmetric else (high - low) / 15).to(dtype)
        step = scales[:, g].float()
        if not symmetric:
            zeros[:, g] = (-low / step).round().clamp(1, 15).long()
        whole = (columns / step[:, None]).round().long() + zeros[:, g, None]
        q[:, group_of == g] = whole.clamp(0, 15)
    return Groups(q, zeros, scales, group_of)


def packed(values: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Rows of numbers, eight to an int32: nibble i of a word is its column order[i]."""
    rows, columns = values.shape
    num_words = -(-columns // 8)
    whole = np.zeros((rows, 8 * num_words), dtype=np.uint32)
    whole[:, :columns] = values.numpy()
    words = np.zeros((rows, num_words), dtype=np.uint32)
    for nibble, column in enumerate(order):
        words |= whole[:, column::8] << np.uint32(4 * nibble)
    return torch.from_numpy(words.view(np.int32))


def awq(group: int) -> Publish:
    """Inputs are rows; of eight outputs in a word, in an order of its own."""

    def publish(weight: Tensor) -> Published:
        g = grouped(weight, group, symmetric=False, dtype=torch.float16)
        tensors = {
            "qweight": packed(g.q.T, AWQ_ORDER),
            "qzeros": packed(g.zeros.T, AWQ_ORDER),
            "scales": g.scales.T.contiguous(),
        }
        return Published(tensors, g.numbers)

    return publish


def gptq(group: int, *, symmetric: bool, less: int = 1, scattered: bool = False) -> Publish:
    """Inputs are rows, eight to a word; zeros are stored as one `less`, but by version 2."""

    def publish(weight: Tensor) -> Published:
        g = grouped(weight, group, symmetric=symmetric, dtype=torch.float16, scattered=scattered)
        tensors = {
            "qweight": packed(g.q).T.contiguous(),
            "qzeros": packed(g.zeros.T - less),
            "scales": g.scales.T.contiguous(),
            "g_idx": g.group_of.int(),
        }
        return Published(tensors, g.numbers)

    return publish


def words(group: int, *, symmetric: bool, dtype: torch.dtype = torch.bfloat16) -> Publish:
    """Pack-quantized of compressed-tensors: outputs are rows, of zeros as well eight to a word."""

    def publish(weight: Tensor) -> Published:
        g = grouped(weight, group, symmetric=symmetric, dtype=dtype)
        tensors = {
            "weight_packed": packed(g.q),
            "weight_scale": g.scales,
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            tensors["weight_zero_point"] = packed(g.zeros.T).T.contiguous()
        return Published(tensors, g.numbers)

    return publish


def mxfp4(weight: Tensor) -> Published:
    """Two E2M1 numbers in a byte, an exponent per 32."""
    n, k = weight.shape
    blocks = weight.view(n, -1, 32)
    exponents = (blocks.abs().amax(-1) / 6).log2().ceil()
    values = torch.tensor([*E2M1, *(-value for value in E2M1)])
    distance = (blocks.unsqueeze(-1) / exponents.exp2()[..., None, None] - values).abs()
    codes = distance.argmin(-1)
    numbers = (values[codes] * exponents.exp2().unsqueeze(-1)).view(n, k)
    by_column = codes.view(n, k)
    return Published(
        {
            "weight_packed": (by_column[:, ::2] | by_column[:, 1::2] << 4).byte(),
            "weight_scale": (exponents + 127).byte(),
        },
        numbers,
    )


def published_state(
    state: Mapping[str, Any], publish: Publish, *, of: str = "_proj.weight"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A model's tensors with its matrices published, and its tensors as those stand for them."""
    tensors, truth = {}, dict(state)
    for name, array in state.items():
        if not name.endswith(of):
            tensors[name] = torch.as_tensor(array)
            continue
        parts, numbers = publish(torch.as_tensor(array))
        tensors |= {name.removesuffix("weight") + part: each for part, each in parts.items()}
        truth[name] = numbers.numpy()
    return tensors, truth
