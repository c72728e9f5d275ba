# SPDX-License-Identifier: Apache-2.0
"""StepPlan -> Step: the plan's int32 views become tensors over the same memory."""

import torch
from torch.utils.dlpack import from_dlpack

from tokenlight.control import Plan
from tokenlight.nn import KvCache, Step


def make_step(plan: Plan, kv: KvCache) -> Step:
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


def make_trial_step(
    kv: KvCache,
    *,
    num_tokens: int = 1,
    num_requests: int = 1,
    num_columns: int = 1,
    device: torch.device | str = "cpu",
) -> Step:
    """To be run before any request owns a block: each request's KV is in the first blocks.

    Args:
        kv: has blocks for `num_tokens`.
        num_tokens: of all requests, which have as many each, and the last what is left over.
        num_requests: each is sampled from.
        num_columns: least width of the block table, of which kernels may make something.
        device: where the step's tensors are.
    """
    each = num_tokens // num_requests
    starts = torch.arange(num_requests + 1, dtype=torch.int32) * each
    starts[-1] = num_tokens
    lengths = starts.diff()
    positions = torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths.tolist()])
    block_tokens = kv.layer(0)[0].shape[2]
    num_blocks = -(-int(lengths.max()) // block_tokens)
    table = torch.zeros(num_requests, max(num_blocks, num_columns), dtype=torch.int32)
    table[:, :num_blocks] = torch.arange(num_blocks)
    return Step(
        token_ids_T=torch.zeros(num_tokens, dtype=torch.int32, device=device),
        positions_T=positions.to(device),
        query_starts=starts.to(device),
        kv_lens=lengths.to(device),
        slots=torch.arange(num_requests, dtype=torch.int32, device=device),
        block_table=table.to(device),
        sampled_rows=(starts[1:] - 1).to(device),
        kv=kv,
    )
