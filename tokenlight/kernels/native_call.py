# SPDX-License-Identifier: Apache-2.0
"""How an implementation joins a compiled CPU step: its entry appends one instruction, once.

An entry is given what a call of its op would be, with tensors known by where they lie and how their
rows are laid out; only the number of rows differs from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch

from tokenlight.kernels import _cpu


@dataclass(frozen=True, slots=True)
class NativeTensor:
    """A tensor of a step whose first dimension is its rows."""

    place: _cpu.Place
    rows: _cpu.Count
    """Meaningless for a weight and for what the step brings: those are as they are."""
    shape: tuple[int, ...]
    """Of one row."""
    strides: tuple[int, ...]
    """Of rows, then of a row's dimensions; in elements."""
    dtype: torch.dtype
    num_rows: int = 0
    """Of a weight or a cache."""
    arena_bytes: int | None = None
    """Where in the arena it begins; None: it is not there."""

    @property
    def row_elements(self) -> int:
        return prod(self.shape)

    def column(self, start: int) -> _cpu.Place:
        """Where each row's element `start` lies, of a tensor in the arena."""
        assert self.arena_bytes is not None
        return _cpu.Place.arena(self.arena_bytes + start * self.dtype.itemsize)

    def has_dense_rows(self) -> bool:
        """Whether each row is float32 without gaps."""
        dense, stride = [], 1
        for size in reversed(self.shape):
            dense.append(stride)
            stride *= size
        return self.dtype is torch.float32 and self.strides[1:] == tuple(reversed(dense))


NOTHING = _cpu.Place.none()


class NativeCall(NamedTuple):
    """One call: append it to `program`, or say False where it cannot be served."""

    program: _cpu.StepProgram
    operands: tuple[NativeTensor | None, ...]
    outputs: tuple[NativeTensor, ...]
    options: Mapping[str, Any]

    def operand(self, index: int) -> NativeTensor:
        """One that is not left out."""
        found = self.operands[index]
        assert found is not None
        return found

    def place(self, index: int) -> _cpu.Place:
        """Where an operand lies; nowhere if it is left out."""
        found = self.operands[index] if index < len(self.operands) else None
        return NOTHING if found is None else found.place


Entry = Callable[[NativeCall], bool]
