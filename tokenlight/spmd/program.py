# SPDX-License-Identifier: Apache-2.0
"""A compiled step: instructions over buffers, for any number of rows up to its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tokenlight.kernels.contract import Implementation, Op
from tokenlight.spmd.rows import Limits, Rows


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows that one instruction makes, contiguous; `offset` is its place in the arena, in bytes."""

    rows: Rows
    shape: tuple[int, ...]
    """Of one row."""
    dtype: torch.dtype
    offset: int


@dataclass(frozen=True, slots=True)
class View:
    """A buffer, or columns of it as heads; `offset` and `strides` are in elements."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    """Of one row."""
    strides: tuple[int, ...]
    """Of a row, then of its dimensions."""
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A weight."""

    tensor: Tensor


@dataclass(frozen=True, slots=True)
class StepField:
    """A tensor that the step brings."""

    name: str


@dataclass(frozen=True, slots=True)
class KvField:
    """A tensor of a layer's cache: of plain attention 0 has the keys, 1 the values."""

    layer: int
    part: int


Operand = View | Constant | StepField | KvField | None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One call: `outputs` are the buffers it makes, none where it writes in place."""

    op: Op[..., Any]
    implementation: Implementation[..., Any]
    operands: tuple[Operand, ...]
    options: Mapping[str, Any]
    outputs: tuple[int, ...]
    label: str
    """The module whose code this is: `layers.0.self_attn.o_proj`."""
    ends: tuple[int, ...]
    """Buffers that nothing reads afterwards."""


class StepRows(Protocol):
    """What any step tells: how many rows it has."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_sampled(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A straight run: no branch, and no choice that is not made."""

    instructions: tuple[Instruction, ...]
    buffers: tuple[Buffer, ...]
    result: View
    limits: Limits
    arena_bytes: int
    few: Program | None = None
    """The same for fewer rows, with what is better for these; it may have one for fewer still."""

    def at(self, step: StepRows) -> Program:
        """The program for the fewest rows that has room for the step."""
        few = self.few
        if few is None or not few.has_room(step):
            return self
        return few.at(step)

    def has_room(self, step: StepRows) -> bool:
        return step.num_tokens <= self.limits.T and step.num_sampled <= self.limits.S

    def run(self, step: Any) -> Tensor:
        """Execute in Python, which is what every other way to execute must equal."""
        held: dict[int, Tensor] = {}
        for instruction in self.instructions:
            args = [_fetch(operand, held, step) for operand in instruction.operands]
            made = instruction.implementation.run(*args, **instruction.options)
            outputs = made if isinstance(made, tuple) else (made,)
            held.update(zip(instruction.outputs, outputs, strict=False))
            for buffer in instruction.ends:
                del held[buffer]
        result = _fetch(self.result, held, step)
        assert result is not None
        return result


def _fetch(operand: Operand, held: Mapping[int, Tensor], step: Any) -> Tensor | None:
    match operand:
        case View(is_whole=True):
            return held[operand.buffer]
        case View():
            rows = held[operand.buffer]
            shape = (rows.shape[0], *operand.shape)
            return rows.as_strided(shape, operand.strides, operand.offset)
        case Constant():
            return operand.tensor
        case StepField():
            field: Tensor = getattr(step, operand.name)
            return field
        case KvField():
            cache: Tensor = step.kv.layer(operand.layer)[operand.part]
            return cache
    return None
