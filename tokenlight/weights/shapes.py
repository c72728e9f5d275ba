# SPDX-License-Identifier: Apache-2.0
"""Models without numbers: every slot filled on device "meta", for who asks only for shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import nn

from tokenlight.kernels import Format
from tokenlight.weights.load import slots_of
from tokenlight.weights.slot import Target
from tokenlight.weights.stored import StoredTensor

# (slot, part) -> what a checkpoint stores it as
FormatOf = Callable[[str, int], Format]


def fill_without_numbers(model: nn.Module, format_of: FormatOf, dtype: torch.dtype) -> None:
    """Give each layer what a fill would give it, but memory."""
    model.to("meta")
    target = Target(torch.device("meta"), dtype)
    for name, slot in slots_of(model).items():
        parts = [
            _stored(name, shape, format_of(name, part))
            for part, shape in enumerate(slot.part_shapes)
        ]
        slot.fill(parts, target)


def _stored(name: str, shape: tuple[int, ...], stored_format: Format) -> StoredTensor:
    num_rows = prod(shape[:-1])
    # A piece need not be whole blocks here: where it cuts one, loading says so.
    row_bytes = -(-shape[-1] // stored_format.block_elements) * stored_format.block_bytes
    return StoredTensor(
        name=name,
        shape=shape,
        format=stored_format,
        layout="huggingface",
        rows=torch.empty(num_rows, row_bytes, dtype=torch.uint8, device="meta"),
    )
