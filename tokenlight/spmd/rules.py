# SPDX-License-Identifier: Apache-2.0
"""What each contract does to placements: for one axis of the mesh, operands -> result.

A row holds on every axis by itself. None is an operand that may be anything, or is not there. A
contract without a row that fits is not wrong: what it is given must be moved first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenlight import kernels
from tokenlight.kernels.contract import Op
from tokenlight.spmd.placement import PARTIAL, REPLICATE, Placement, Shard

R, P, S0, S1, S2 = REPLICATE, PARTIAL, Shard(0), Shard(1), Shard(2)


class Row(NamedTuple):
    """`operands` shorter than a call's: the last one stands for the rest."""

    operands: tuple[Placement | None, ...]
    result: Placement
    num_dims: int = 0
    """Of the first operand; 0: any."""

    def wanted(self, count: int) -> tuple[Placement | None, ...]:
        return (self.operands + self.operands[-1:] * count)[:count]

    def fits(self, here: Sequence[Placement | None], num_dims: int) -> bool:
        """Whether a call's operands are what this row wants."""
        if self.num_dims not in (0, num_dims):
            return False
        pairs = zip(here, self.wanted(len(here)), strict=True)
        return all(found is None or want is None or found == want for found, want in pairs)


def _rows(*table: tuple[tuple[Placement | None, ...], Placement]) -> tuple[Row, ...]:
    return tuple(Row(*row) for row in table)


# A token's result depends on that token alone, and on weights that all ranks have.
_TOKENWISE = (((R, R), R), ((S0, R), S0))
# Each element by itself, or within what a rank holds of gate and up.
_ELEMENTWISE = (((R,), R), ((S0,), S0), ((S1,), S1))
_LINEAR = (*_ELEMENTWISE, ((P,), P))
# A batch's own arrays are the same on ranks that share heads, and differ with the tokens.
_BATCH_R, _BATCH_S0 = (R,) * 4, (S0,) * 4
_CACHES = (None, None)

RULES: dict[Op[..., Any], tuple[Row, ...]] = {
    kernels.add: _rows(*_LINEAR),
    kernels.concat_columns: _rows(*_LINEAR),
    kernels.embedding: _rows(*_TOKENWISE),
    kernels.embedding_slice: _rows(((R, S0), P), ((S0, R), S0)),
    kernels.gather_rows: _rows(((R, R), R), ((S0, S0), S0), ((S1, R), S1), ((P, R), P)),
    kernels.gelu_tanh_mul: _rows(*_ELEMENTWISE),
    kernels.head_linear: _rows(((R, R), R), ((S0, R), S0), ((S1, S0), S1)),
    kernels.linear: _rows(
        ((R, R, R), R),
        ((S0, R, R), S0),
        ((R, S0, S0), S1),
        ((S1, S1, P), P),
        ((P, R, P), P),
    ),
    kernels.mla_attention: _rows(
        ((R, R, None, *_BATCH_R), R),
        ((S1, S1, None, *_BATCH_R), S1),
        ((S0, S0, None, *_BATCH_S0), S0),
    ),
    kernels.moe: _rows(
        ((R,), R),
        ((S0, S0, S0, R, R, R, R), S0),
        ((R, R, R, S0, S0, S0, S0), P),  # a rank has some experts
        ((R, R, R, S1, S2, S1, P), P),  # or some features of each
    ),
    kernels.paged_attention: _rows(
        ((R, *_CACHES, *_BATCH_R, R), R),
        ((S1, *_CACHES, *_BATCH_R, S0), S1),
        ((S0, *_CACHES, *_BATCH_S0, R), S0),
    ),
    kernels.rms_norm: (*_rows(*_TOKENWISE), Row((S1, R), S1, num_dims=3)),  # each head by itself
    kernels.rope_: _rows(
        ((R, R, R), R),
        ((S1, S1, R), S1),
        ((S1, R, R), S1),  # one key for all heads
        ((S0, S0, S0), S0),
    ),
    kernels.rope_angles: _rows(*_TOKENWISE),
    kernels.route: _rows(*_TOKENWISE),
    kernels.scale: _rows(*_LINEAR),
    kernels.silu_mul: _rows(*_ELEMENTWISE),
    kernels.softcap: _rows(*_ELEMENTWISE),
    # What is split is joined before it is widened, in half the bytes.
    kernels.to_float32: _rows(((R,), R), ((S0,), S0)),
    kernels.write_latent_: _rows(
        ((R, R, None, *_BATCH_R), R),
        ((S0, S0, None, *_BATCH_S0), S0),
    ),
    kernels.write_kv_: _rows(
        ((R, R, *_CACHES, *_BATCH_R), R),
        ((S1, S1, *_CACHES, *_BATCH_R), S1),
        ((S0, S0, *_CACHES, *_BATCH_S0), S0),
    ),
}
