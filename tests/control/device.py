# SPDX-License-Identifier: Apache-2.0
"""A device without a model: its KV is a digest of all that precedes, its next token a hash of that.

It runs step plans as a runner would. A block that was freed too early, shared too early or written
by two owners shows up as KV that does not belong to the request that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from tokenlight.control import CopyPlan, SchedulerConfig, StepPlan

VOCAB = 50


def digest_after(digest: int, token: int, position: int) -> int:
    return crc32(f"{digest} {token} {position}".encode())


def next_token(digest: int) -> int:
    return digest % VOCAB


def text_alone(prompt: list[int], num_tokens: int, stops: tuple[int, ...] = ()) -> list[int]:
    """What a prompt must be answered with, whatever else runs."""
    digest = 0
    for position, token in enumerate(prompt):
        digest = digest_after(digest, token, position)
    text: list[int] = []
    while len(text) < num_tokens:
        token = next_token(digest)
        if token in stops:
            break
        text.append(token)
        digest = digest_after(digest, token, len(prompt) + len(text) - 1)
    return text


@dataclass
class Device:
    config: SchedulerConfig
    num_blocks: int
    kv: np.ndarray = field(init=False)
    last_sampled: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kv = np.full((self.num_blocks, self.config.block_tokens), -1, np.int64)

    def execute(self, plan: StepPlan) -> np.ndarray:
        """Sampled ids, int32[S]; for a row with drafts, what follows each of its tokens."""
        self._copy(plan)
        table, starts = plan.block_table, plan.query_starts
        token_ids, positions = plan.token_ids, plan.positions
        digests = np.zeros(plan.num_tokens, np.int64)
        for r, slot in enumerate(plan.slots):
            for t in range(starts[r], starts[r + 1]):
                position = int(positions[t])
                token = int(token_ids[t])
                if token < 0:
                    token = self.last_sampled[int(slot)]
                before = self._read(table[slot], position - 1) if position else 0
                digests[t] = digest_after(before, token, position)
                block, offset = divmod(position, self.config.block_tokens)
                self.kv[table[slot][block], offset] = digests[t]
            assert plan.kv_lens[r] == positions[starts[r + 1] - 1] + 1
        sampled = np.array([next_token(int(digests[t])) for t in plan.sampled_rows], np.int32)
        for s, r in enumerate(plan.sampled_requests):
            self.last_sampled[int(plan.slots[r])] = int(sampled[s])
        return sampled

    def _copy(self, plan: StepPlan) -> None:
        for source, target, num_tokens in plan.copies:
            self.kv[target, :num_tokens] = self.kv[source, :num_tokens]

    def _read(self, row: np.ndarray, position: int) -> int:
        block, offset = divmod(position, self.config.block_tokens)
        return int(self.kv[row[block], offset])


@dataclass
class HostTier:
    """Host memory beside a device; a copy that fails leaves junk where it was to write."""

    device: Device
    num_blocks: int
    kv: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.kv = np.full((self.num_blocks, self.device.config.block_tokens), -1, np.int64)

    def run(self, copy: CopyPlan, *, has_succeeded: bool) -> None:
        for is_store, device_block, host_block in copy.rows:
            device, host = self.device.kv[device_block], self.kv[host_block]
            target, source = (host, device) if is_store else (device, host)
            target[:] = source if has_succeeded else -2
