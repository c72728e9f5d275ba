# SPDX-License-Identifier: Apache-2.0
"""The C++ scheduler and its Python twin make the same plans and deltas, call for call."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.control.device import Device
from tests.control.twin import Twin
from tokenlight.control import Scheduler, SchedulerConfig

BLOCK_TOKENS = 4


class Both(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(6, 20),
        max_requests=st.integers(1, 4),
        max_step=st.integers(4, 16),
        margin=st.integers(0, 8),
        max_preempt=st.integers(0, 3),
        reuse=st.booleans(),
    )
    def make(self, num_blocks, max_requests, max_step, margin, max_preempt, reuse):
        config = SchedulerConfig(
            num_blocks=num_blocks,
            block_tokens=BLOCK_TOKENS,
            max_num_requests=max_requests,
            max_step_tokens=max_step,
            max_model_tokens=num_blocks * BLOCK_TOKENS,
            prefix_reuse=reuse,
            hash_key=b"k" * 16,
            output_margin_tokens=margin,
            max_preemptions=max_preempt,
        )
        self.num_blocks = num_blocks
        self.scheduler = Scheduler(config)
        self.device = Device(config, num_blocks)
        self.twin = Twin(
            num_blocks, BLOCK_TOKENS, max_requests, max_step, margin, max_preempt, reuse
        )
        self.next_id = 0
        self.open = None

    @rule(
        family=st.integers(0, 2),
        num_prompt=st.integers(1, 40),
        tail=st.integers(0, 3),
        max_new=st.integers(1, 24),
        priority=st.integers(-1, 1),
    )
    def submit(self, family, num_prompt, tail, max_new, priority):
        limit = self.num_blocks * BLOCK_TOKENS
        prompt = [*([family] * num_prompt)[: limit - 2], tail]
        max_new = min(max_new, limit - len(prompt))
        ids = np.array(prompt, np.int32)
        self.scheduler.submit(self.next_id, ids, max_new_tokens=max_new, priority=priority)
        self.twin.submit(self.next_id, prompt, max_new, priority)
        self.next_id += 1

    @precondition(lambda self: self.next_id > 0)
    @rule(data=st.data())
    def abort(self, data):
        id = data.draw(st.integers(0, self.next_id - 1))
        assert self.scheduler.abort(id) == self.twin.abort(id)

    @precondition(lambda self: self.open is None)
    @rule()
    def plan(self):
        plan, rows = self.scheduler.plan(0), self.twin.plan()
        if plan is None:
            assert rows == []
            return
        assert plan.request_ids.tolist() == [row.request.id for row in rows]
        assert np.diff(plan.query_starts).tolist() == [row.num_tokens for row in rows]
        assert plan.kv_lens.tolist() == [row.start + row.num_tokens for row in rows]
        tokens = [t for r in rows for t in r.request.tokens[r.start : r.start + r.num_tokens]]
        assert plan.token_ids.tolist() == tokens
        positions = [p for r in rows for p in range(r.start, r.start + r.num_tokens)]
        assert plan.positions.tolist() == positions
        assert plan.sampled_requests.tolist() == [i for i, row in enumerate(rows) if row.samples]
        self.open = plan, rows
        self.same_counts()

    @precondition(lambda self: self.open is not None)
    @rule()
    def commit(self):
        (plan, rows), self.open = self.open, None
        sampled = self.device.execute(plan)
        deltas = self.scheduler.commit(plan.guard, sampled)
        expected = self.twin.commit(rows, sampled.tolist())
        assert [
            (
                d.id,
                d.token_ids,
                d.finish_reason == "length",
                d.num_cached_tokens,
                d.num_sampled_tokens,
            )
            for d in deltas
        ] == expected
        self.same_counts()

    def same_counts(self):
        stats, twin = self.scheduler.stats(), self.twin
        assert stats.num_free_blocks == len(twin.free)
        assert stats.num_cached_blocks == sum(b.key is not None for b in twin.free)
        assert stats.num_waiting == len(twin.waiting)
        assert stats.num_running == len(twin.prefilling) + len(twin.decoding)
        assert stats.num_preemptions == twin.num_preemptions

    def teardown(self):
        if getattr(self, "open", None):
            self.commit()


TestBoth = Both.TestCase
TestBoth.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
