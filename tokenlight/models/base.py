# SPDX-License-Identifier: Apache-2.0
"""What every model is made from and what it offers.

Shapes: S sampled rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tokenlight.checkpoint import Checkpoint
from tokenlight.nn import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes of a model: config.json's own names, checked and typed."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Config:
        return cls(**{name: checkpoint.config[name] for name in cls.__dataclass_fields__})


class Model(Protocol):
    """A model file's `Model`."""

    def __init__(self, c: Config) -> None: ...

    def forward(self, step: Step) -> Tensor:
        """Logits of the step's sampled rows: float32 [S, V]."""
