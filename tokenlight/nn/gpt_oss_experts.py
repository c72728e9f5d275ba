# SPDX-License-Identifier: Apache-2.0
"""gpt-oss's experts as its checkpoints have them: gate's and up's features take turns.

Shapes: E experts, D hidden, F inner features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from tokenlight.kernels import FORMATS
from tokenlight.nn.moe import Experts, ExpertsShape, Gate
from tokenlight.weights import Slot, StoredTensor, Target, as_dense_like

_BLOCK = FORMATS["mxfp4"].block_elements


class GptOssExperts(Experts):
    """`is_mxfp4`: matrices are blocks and scales; else they are dense, inputs first."""

    def __init__(self, shape: ExpertsShape, *, is_mxfp4: bool, gate: Gate) -> None:
        super().__init__(shape, bias=True, gate=gate)
        self.is_mxfp4 = is_mxfp4

    def slots(self) -> Mapping[str, Slot]:
        s = self.shape
        num_experts, both = s.num_experts, 2 * s.inner_dim
        biases = {
            "gate_up_proj_bias": Slot(part_shapes=((num_experts, both),), fill=self._fill_both),
            "down_proj_bias": Slot(part_shapes=((num_experts, s.dim),), fill=self.fill_down_bias),
        }
        if not self.is_mxfp4:
            return biases | {
                "gate_up_proj": Slot(
                    part_shapes=((num_experts, s.dim, both),), fill=self._fill_turned_gate_up
                ),
                "down_proj": Slot(
                    part_shapes=((num_experts, s.inner_dim, s.dim),), fill=self._fill_turned_down
                ),
            }
        return biases | {
            "gate_up_proj_mxfp4": Slot(
                part_shapes=_blocks_and_scales(num_experts, both, s.dim), fill=self._fill_gate_up
            ),
            "down_proj_mxfp4": Slot(
                part_shapes=_blocks_and_scales(num_experts, s.dim, s.inner_dim),
                fill=self._fill_down,
            ),
        }

    def _fill_both(self, parts: Sequence[StoredTensor], target: Target) -> None:
        both = parts[0].dense(torch.float32)
        self.gate_up_bias = torch.cat([both[:, ::2], both[:, 1::2]], dim=1).to(target.device)

    def _fill_turned_gate_up(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.fill_gate_up(_taking_turns(_turned(parts[0])), target)

    def _fill_turned_down(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.fill_down([_turned(parts[0])], target)

    def _fill_gate_up(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.fill_gate_up(_taking_turns(_joined(parts)), target)

    def _fill_down(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.fill_down([_joined(parts)], target)


def _blocks_and_scales(num_experts: int, n: int, k: int) -> tuple[tuple[int, ...], ...]:
    num_blocks = k // _BLOCK
    return (num_experts, n, num_blocks, _BLOCK // 2), (num_experts, n, num_blocks)


def _turned(stored: StoredTensor) -> StoredTensor:
    """Dense [E, K, N] as [E, N, K]."""
    return as_dense_like(stored, stored.dense(torch.float32).mT)


def _taking_turns(stored: StoredTensor) -> list[StoredTensor]:
    """[E, 2F, D] as gate's and up's [E, F, D]."""
    num_experts, both, k = stored.shape
    rows = stored.rows.reshape(num_experts, both, -1)
    shape = (num_experts, both // 2, k)
    return [replace(stored, shape=shape, rows=rows[:, first::2]) for first in (0, 1)]


def _joined(parts: Sequence[StoredTensor]) -> StoredTensor:
    """Blocks and scales as GGUF's MXFP4: a scale, then the nibbles of elements i and i + 16.

    The checkpoint's bytes hold elements 2i (low nibble) and 2i + 1.
    """
    blocks, scales = parts
    num_experts, n, num_blocks = scales.shape
    pairs = blocks.rows.reshape(num_experts, n, num_blocks, _BLOCK // 2)
    elements = torch.stack([pairs & 0xF, pairs >> 4], dim=-1).flatten(-2)
    first, second = elements.chunk(2, dim=-1)
    nibbles = first | second << 4
    rows = torch.cat([scales.rows.reshape(num_experts, n, num_blocks, 1), nibbles], dim=-1)
    shape = (num_experts, n, num_blocks * _BLOCK)
    return replace(blocks, format=FORMATS["mxfp4"], shape=shape, rows=rows.flatten(2))
