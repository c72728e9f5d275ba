# SPDX-License-Identifier: Apache-2.0
"""The reference C++ scheduler (PyPI tokenspeed-scheduler 0.1.42) at steady decode: us per step.

Run by benchmarks/control.py with the Python of an environment that has it. Per step: plan, the
forward operation, its block tables, the advance with a token per request; no statistics calls.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from statistics import median

import tokenspeed_scheduler as peer
from tokenspeed_scheduler import tokenspeed_scheduler_ext as ext

MAX_STEP_TOKENS = 8192


def make_scheduler(num_requests: int, num_pages: int, block_tokens: int) -> peer.Scheduler:
    group = peer.CacheGroupConfig(
        group_id="full",
        block_granularity=block_tokens,
        total_pages=num_pages,
        attn_kind=next(kind for name, kind in vars(ext.AttnKind).items() if "ull" in name),
    )
    config = peer.SchedulerConfig()
    config.prefix_granularity = block_tokens
    config.num_device_pages = num_pages
    config.max_scheduled_tokens = MAX_STEP_TOKENS
    config.max_batch_size = num_requests
    config.decode_input_tokens = 1
    config.overlap_schedule_depth = 0
    config.disable_l2_cache = True
    config.num_host_pages = 0
    config.disable_prefix_cache = False
    config.role = peer.SchedulerConfig.Role.Fused
    config.num_snapshot_pages = 1
    config.max_retracted_requests = 0
    config.cache_groups = [group]
    return peer.Scheduler(config)


def results(forward: object) -> peer.ExecutionEvent:
    """One sampled token for each request whose prompt is computed."""
    event = peer.ExecutionEvent()
    num_extends = forward.num_extends()
    prefixes, lengths = forward.extend_prefix_lens, forward.input_lengths
    totals = forward.prefill_lengths
    for i, request_id in enumerate(forward.request_ids):
        if i < num_extends and prefixes[i] + lengths[i] < totals[i]:
            continue
        sampled = peer.ForwardEvent.ExtendResult()
        sampled.request_id, sampled.tokens = request_id, [7]
        event.add_event(sampled)
        if i >= num_extends:
            reserve = peer.ForwardEvent.UpdateReserveNumTokens()
            reserve.request_id = request_id
            reserve.reserve_num_tokens_in_next_schedule_event = 1
            event.add_event(reserve)
    return event


def main(context_tokens: int, num_requests: int, block_tokens: int, num_steps: int) -> None:
    num_pages = num_requests * (context_tokens // block_tokens + 80) + 2000
    scheduler = make_scheduler(num_requests, num_pages, block_tokens)
    for i in range(num_requests):
        spec = peer.RequestSpec()
        spec.request_id = f"request-{i}"
        spec.tokens = array("i", [(i * 7919 + t * 104729) % 150_000 for t in range(context_tokens)])
        spec.max_new_tokens = 4096
        scheduler.submit_requests([spec])
    while True:
        forward = scheduler.next_execution_plan().forward[0]
        is_decode = forward.num_extends() == 0 and len(forward.request_ids) == num_requests
        scheduler.advance(results(forward))
        if is_decode:
            break
    steps_us = []
    for _ in range(num_steps):
        start = time.perf_counter()
        forward = scheduler.next_execution_plan().forward[0]
        forward.block_tables_arrays()
        scheduler.advance(results(forward))
        steps_us.append((time.perf_counter() - start) * 1e6)
    print(json.dumps({"step_us": median(steps_us)}))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]))
