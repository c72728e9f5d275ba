# SPDX-License-Identifier: Apache-2.0
"""The token table, and the output head that may share it.

Shapes: T tokens, S sampled rows, D hidden, V vocabulary.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.nn.module import TensorModule
from tokenlight.weights import Slot, StoredTensor, Target, pack_rows


class Embedding(TensorModule):
    """A row of the table per token, times `scale`.

    Where ranks share the table, `first_row` is the first that is here: the result is then this
    rank's share of a sum.
    """

    weight: Tensor

    def __init__(
        self, vocab_size: int, dim: int, *, scale: float = 1.0, first_row: int | None = None
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.dim = dim
        self.scale = scale
        self.first_row = first_row
        self.format = kernels.FORMATS["f32"]
        self.dtype = torch.float32
        self.register_buffer("weight", None)

    def forward(self, ids_T: Tensor) -> Tensor:
        x_TD = self._rows(ids_T)
        return x_TD if self.scale == 1.0 else x_TD * self.scale

    def _rows(self, ids_T: Tensor) -> Tensor:
        if self.first_row is None:
            return kernels.embedding(ids_T, self.weight, format=self.format, dtype=self.dtype)
        return kernels.embedding_slice(
            ids_T, self.weight, first_row=self.first_row, format=self.format, dtype=self.dtype
        )

    def slots(self) -> Mapping[str, Slot]:
        return {"weight": Slot(part_shapes=((self.vocab_size, self.dim),), fill=self._fill)}

    def _fill(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.weight, self.format = pack_rows(parts, target)
        self.dtype = target.dtype


class TiedHead(TensorModule):
    """Logits from the token table itself, which is kept once."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, x_SD: Tensor) -> Tensor:
        table = self.embedding
        return kernels.linear(x_SD, table.weight, None, format=table.format)
