# SPDX-License-Identifier: Apache-2.0
"""A program as a CPU runs it: its instructions as native code over one arena.

Built when the first step is there, because only then it is known where caches lie. An instruction
whose implementation has no entry is called from Python, between native ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from tokenlight.kernels import _cpu
from tokenlight.kernels.native_call import NativeCall, NativeTensor
from tokenlight.spmd.program import (
    Constant,
    Instruction,
    KvField,
    Operand,
    Program,
    StepField,
    StepRows,
    View,
)
from tokenlight.spmd.rows import Limits


class NativeProgram:
    """Runs as `Program.run` does, by the program for as few rows as the step has."""

    def __init__(self, program: Program, *, activation_bits: int = 15) -> None:
        """`activation_bits`: 8 or 15, of what products of Q4_K, Q5_K, Q6_K and Q8_0 take."""
        self._program = program
        self._activation_bits = activation_bits
        self._arena = torch.empty(_arena_bytes(program), dtype=torch.uint8)
        self._built: dict[Limits, _Built] = {}

    def run(self, step: Any) -> Tensor:
        """Raises IndexError as the kernels do: an index of the step is outside its table."""
        program = self._program.at(step)
        built = self._built.get(program.limits)
        if built is None or not built.fits(step):
            built = self._built[program.limits] = self._build(program, step)
        return built.run(step)

    def in_python(self, step: Any) -> list[str]:
        """What a step like this one would leave native code for: an op and a label each."""
        built = self._build(self._program.at(step), step)
        left = [part for part in built.parts if isinstance(part, Instruction)]
        return [f"{instruction.op.name} {instruction.label}" for instruction in left]

    def _build(self, program: Program, step: Any) -> _Built:
        return _Built(program, self._arena, step, rounds_to_bytes=self._activation_bits == 8)


@dataclass(frozen=True, slots=True)
class _Native:
    """The native instructions [first, last)."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _PythonCall:
    """An instruction that Python calls, for a number of rows: its tensors but those of a step."""

    instruction: Instruction
    args: list[Tensor | None]
    fields: list[tuple[int, str]]
    """Which of the arguments a step brings, and what it calls them."""
    results: list[Tensor]

    def run(self, step: Any) -> None:
        """Results are copied to where they belong."""
        for index, name in self.fields:
            self.args[index] = getattr(step, name)
        made = self.instruction.implementation.run(*self.args, **self.instruction.options)
        many = made if isinstance(made, tuple) else (made,)
        for mine, result in zip(self.results, many, strict=False):
            mine.copy_(result)


def _arena_bytes(program: Program | None) -> int:
    """Of the largest: one program runs at a time."""
    return 0 if program is None else max(program.arena_bytes, _arena_bytes(program.few))


class _Built:
    """A program for the caches of one step, and all others with the same."""

    def __init__(
        self, program: Program, arena: Tensor, step: Any, *, rounds_to_bytes: bool
    ) -> None:
        self._program = program
        self._arena = arena
        self._kv = getattr(step, "kv", None)
        self._fields = sorted(
            {o.name for i in program.instructions for o in i.operands if isinstance(o, StepField)}
        )
        self._layouts = [_layout(getattr(step, name)) for name in self._fields]
        self._code = _cpu.StepProgram(arena.data_ptr(), len(self._fields), rounds_to_bytes)
        self.parts: list[_Native | Instruction] = []
        self._calls: dict[int, _PythonCall] = {}
        """By their part, for as many rows as the last step had."""
        self._num_rows = (-1, -1)
        for instruction in program.instructions:
            self._append(instruction, step)

    def fits(self, step: Any) -> bool:
        return getattr(step, "kv", None) is self._kv and all(
            _layout(getattr(step, name)) == layout
            for name, layout in zip(self._fields, self._layouts, strict=True)
        )

    def run(self, step: StepRows) -> Tensor:
        num_tokens, num_sampled = step.num_tokens, step.num_sampled
        limits = self._program.limits
        if not self._program.has_room(step):
            raise ValueError(
                f"a step of {num_tokens} tokens and {num_sampled} sampled rows is larger than the "
                f"{limits.T} and {limits.S} that the program was made for"
            )
        for index, name in enumerate(self._fields):
            field: Tensor = getattr(step, name)
            columns = field.shape[1] if field.dim() > 1 else 1
            self._code.set_field(index, field.data_ptr(), field.shape[0], columns, field.stride(0))
        if self._num_rows != (num_tokens, num_sampled):
            self._num_rows = (num_tokens, num_sampled)
            self._calls = {
                place: self._python_call(part, step)
                for place, part in enumerate(self.parts)
                if isinstance(part, Instruction)
            }
        for place, part in enumerate(self.parts):
            if isinstance(part, _Native):
                self._code.run(part.first, part.last, num_tokens, num_sampled)
            else:
                self._calls[place].run(step)
        return self._view(self._program.result, step).clone()  # the arena is the next run's

    def _append(self, instruction: Instruction, step: Any) -> None:
        entry = instruction.implementation.entry
        before = len(self._code)
        if entry is not None:
            call = NativeCall(
                self._code,
                tuple(self._native(operand, step) for operand in instruction.operands),
                tuple(self._native(self._whole(b), step) for b in instruction.outputs),  # type: ignore[misc]
                instruction.options,
            )
            if entry(call):
                if self.parts and isinstance(last := self.parts[-1], _Native):
                    self.parts.pop()
                    before = last.first
                self.parts.append(_Native(before, len(self._code)))
                return
        self.parts.append(instruction)

    def _whole(self, buffer: int) -> View:
        shape = self._program.buffers[buffer].shape
        strides = tuple(prod(shape[i:]) for i in range(len(shape) + 1))
        return View(buffer, 0, shape, strides, is_whole=True)

    def _native(self, operand: Operand, step: Any) -> NativeTensor | None:
        match operand:
            case View():
                buffer = self._program.buffers[operand.buffer]
                at = buffer.offset + operand.offset * buffer.dtype.itemsize
                rows, times = buffer.rows
                return NativeTensor(
                    _cpu.Place.arena(at),
                    _cpu.Count(times if rows == "T" else 0, times if rows == "S" else 0),
                    *(operand.shape, operand.strides, buffer.dtype),
                    arena_bytes=at,
                )
            case Constant():
                return _fixed(operand.tensor)
            case KvField():
                return _fixed(step.kv.layer(operand.layer)[operand.part])
            case StepField():
                tensor: Tensor = getattr(step, operand.name)
                place = _cpu.Place.field(self._fields.index(operand.name))
                return _tensor(place, tensor)
        return None

    def _python_call(self, instruction: Instruction, step: StepRows) -> _PythonCall:
        operands = instruction.operands
        return _PythonCall(
            instruction,
            [self._tensor_of(operand, step) for operand in operands],
            [(i, o.name) for i, o in enumerate(operands) if isinstance(o, StepField)],
            [self._view(self._whole(buffer), step) for buffer in instruction.outputs],
        )

    def _tensor_of(self, operand: Operand, step: Any) -> Tensor | None:
        match operand:
            case View():
                return self._view(operand, step)
            case Constant():
                return operand.tensor
            case KvField():
                cache: Tensor = step.kv.layer(operand.layer)[operand.part]
                return cache
            case StepField():
                field: Tensor = getattr(step, operand.name)
                return field
        return None

    def _view(self, view: View, step: StepRows) -> Tensor:
        buffer = self._program.buffers[view.buffer]
        rows, times = buffer.rows
        num_rows = times * (step.num_tokens if rows == "T" else step.num_sampled)
        memory = self._arena[buffer.offset :]
        typed = memory[: len(memory) // buffer.dtype.itemsize * buffer.dtype.itemsize]
        flat = typed.view(buffer.dtype)
        offset = flat.storage_offset() + view.offset
        return flat.as_strided((num_rows, *view.shape), view.strides, offset)


def _fixed(tensor: Tensor) -> NativeTensor:
    return _tensor(_cpu.Place.fixed(tensor.data_ptr()), tensor)


def _tensor(place: _cpu.Place, tensor: Tensor) -> NativeTensor:
    shape: Sequence[int] = tensor.shape
    return NativeTensor(
        *(place, _cpu.Count(0, 0), tuple(shape[1:]), tensor.stride(), tensor.dtype, shape[0])
    )


def _layout(field: Tensor) -> tuple[Any, ...]:
    """What must be the same from step to step: all but rows, and the width of tables."""
    if field.dtype is torch.int32:
        return (field.dtype, field.dim(), field.stride(-1))
    return (field.dtype, field.shape[1:], field.stride())
