# SPDX-License-Identifier: Apache-2.0
"""A model as programs: what the engine runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokenlight.models.base import CausalLM
from tokenlight.nn import KvCache, SampledRows, Step, probe_sampled_rows, probe_step
from tokenlight.spmd import Limits, NativeProgram, Program, Ranks, compile_method


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """Two programs, because logits may be wanted of more rows than the step samples from."""

    body: Program
    """Of a `Step`: what the last layer gives, [T, D]."""
    head: Program
    """Of `SampledRows`: float32 logits, [S, V]."""
    run_body: Callable[[Step], Tensor]
    run_head: Callable[[SampledRows], Tensor]

    def __call__(self, step: Step) -> Tensor:
        """Logits of the step's sampled rows."""
        return self.logits(self.hidden(step), step.sampled_rows)

    def hidden(self, step: Step) -> Tensor:
        return self.run_body(step)

    def logits(self, x_TD: Tensor, rows_S: Tensor) -> Tensor:
        return self.run_head(SampledRows(x_TD, rows_S))


def compile_model(
    model: CausalLM,
    kv: KvCache,
    *,
    device: torch.device | str = "cpu",
    limits: Limits,
    ranks: Ranks | None = None,
    activation_bits: int = 15,
) -> CompiledModel:
    """Compile a filled model for the caches that it will meet.

    Args:
        model: its weights decide the formats, and so the kernels.
        kv: of the dtype and the shapes that it will run with.
        device: where.
        limits: the most tokens of a step, and the most rows that logits are asked of at once.
        ranks: who shares the model, and what this one holds; None: it is alone.
        activation_bits: on a CPU, of what the body's products of Q4_K, Q5_K, Q6_K and Q8_0 take:
            15 or 8. Experts' and the head's take 15.
    """
    device = torch.device(device)
    body = compile_method(
        model, "hidden", probe_step(kv), device=device, limits=limits, ranks=ranks
    )
    result = body.buffers[body.result.buffer]
    probe = probe_sampled_rows(result.shape[0], result.dtype)
    head = compile_method(model, "logits", probe, device=device, limits=limits, ranks=ranks)
    return CompiledModel(
        body, head, _runner(body, device, activation_bits), _runner(head, device, 15)
    )


def _runner(
    program: Program, device: torch.device, activation_bits: int
) -> Callable[[Any], Tensor]:
    """On a CPU without Python between kernels; elsewhere what a graph records."""
    if device.type == "cpu":
        return NativeProgram(program, activation_bits=activation_bits).run
    return lambda step: program.at(step).run(step)
