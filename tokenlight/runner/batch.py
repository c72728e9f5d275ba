# SPDX-License-Identifier: Apache-2.0
"""StepPlan -> Step: the plan's int32 views become tensors over the same memory."""

import torch
from torch.utils.dlpack import from_dlpack

from tokenlight.control import StepPlan
from tokenlight.nn import KvCache, Step


def make_step(plan: StepPlan, kv: KvCache) -> Step:
    """Nothing is copied: the step is valid until the plan is committed, and only reads.

    (DLPack and not `from_numpy`, which objects to the views being read-only.)
    """
    return Step(
        token_ids_T=from_dlpack(plan.token_ids),
        positions_T=from_dlpack(plan.positions),
        query_starts=from_dlpack(plan.query_starts),
        kv_lens=from_dlpack(plan.kv_lens),
        slots=from_dlpack(plan.slots),
        block_table=from_dlpack(plan.block_table),
        sampled_rows=from_dlpack(plan.sampled_rows),
        kv=kv,
    )


def make_trial_step(kv: KvCache) -> Step:
    """One token at position 0 in block 0: to be run before any request owns a block."""
    zero = torch.zeros(1, dtype=torch.int32)
    return Step(
        token_ids_T=zero,
        positions_T=zero,
        query_starts=torch.tensor([0, 1], dtype=torch.int32),
        kv_lens=zero + 1,
        slots=zero,
        block_table=zero.reshape(1, 1),
        sampled_rows=zero,
        kv=kv,
    )
