# SPDX-License-Identifier: Apache-2.0
"""The scheduler once more, short and slow: one group of full attention, no overlap, no drafts.

Written from the rules in docs/control-plane.md. Blocks are objects, keys are the tokens themselves;
nothing is optimised: a disagreement with the C++ is the C++'s fault until shown otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Block:
    key: tuple[int, ...] | None = None
    num_owners: int = 0


@dataclass(eq=False)
class Request:
    id: int
    key: tuple[int, int]
    tokens: list[int]
    num_prompt: int
    max_new: int
    num_preemptions: int = 0
    num_cached: int | None = None
    blocks: list[Block] = field(default_factory=list)
    num_published: int = 0
    promise: int = 0
    computed: int = 0

    @property
    def max_kv(self) -> int:
        return self.num_prompt + self.max_new - 1

    @property
    def is_decoding(self) -> bool:
        return self.computed >= len(self.tokens) - 1 and len(self.tokens) > self.num_prompt


@dataclass
class Row:
    request: Request
    start: int
    num_tokens: int
    samples: bool


class Twin:
    def __init__(
        self, num_blocks, block_tokens, max_requests, max_step, margin, max_preempt, reuse
    ):
        self.block_tokens, self.max_requests, self.max_step = block_tokens, max_requests, max_step
        self.margin, self.max_preempt, self.reuse = margin, max_preempt, reuse
        self.free = [
            Block() for _ in range(num_blocks)
        ]  # blank ones first, then least recently used
        self.index: dict[tuple[int, ...], Block] = {}
        self.waiting: list[Request] = []
        self.prefilling: list[Request] = []
        self.decoding: list[Request] = []
        self.blocked: tuple | None = None
        self.promised = self.num_preemptions = 0

    def num_unpromised(self) -> int:
        return len(self.free) - self.promised

    def submit(self, id, prompt, max_new, priority):
        arrival = getattr(self, "arrival", 0)
        self.arrival = arrival + 1
        self.waiting.append(Request(id, (priority, arrival), list(prompt), len(prompt), max_new))
        self.waiting.sort(key=lambda r: r.key)

    def abort(self, id) -> bool:
        for group in (self.waiting, self.prefilling, self.decoding):
            for request in [r for r in group if r.id == id]:
                group.remove(request)
                self.give_back(request)
                return True
        return False

    def plan(self) -> list[Row]:
        ready = []
        for request in list(self.decoding):
            if request in self.decoding and self.make_room(request, len(request.tokens)):
                ready.append(request)
        rows = [Row(r, r.computed, 1, True) for r in ready if r in self.decoding]
        for row in rows:
            self.take(row.request, row.start + row.num_tokens)
        used = len(rows)
        for request in list(self.prefilling):
            used += self.chunk(request, rows, used)
        while used < self.max_step and (request := self.admit()):
            used += self.chunk(request, rows, used)
        return rows

    def chunk(self, request, rows, used) -> int:
        num = min(len(request.tokens) - request.computed, self.max_step - used)
        if num == 0:
            return 0
        is_last = request.computed + num == len(request.tokens)
        rows.append(Row(request, request.computed, num, is_last))
        self.take(request, request.computed + num)
        if is_last:
            self.prefilling.remove(request)
            self.decoding.append(request)
        return num

    def make_room(self, request, upto) -> bool:
        while True:
            missing = max(0, -(-upto // self.block_tokens) - len(request.blocks)) - request.promise
            if missing <= 0:
                return True
            if missing <= self.num_unpromised():
                request.promise += missing
                self.promised += missing
                return True
            victims = [
                r for r in self.prefilling + self.decoding if r.num_preemptions < self.max_preempt
            ]
            if not victims:
                return False
            victim = max(victims, key=lambda r: r.key)
            (self.decoding if victim in self.decoding else self.prefilling).remove(victim)
            self.give_back(victim)
            victim.num_preemptions += 1
            self.num_preemptions += 1
            self.waiting.append(victim)
            self.waiting.sort(key=lambda r: r.key)
            if victim is request:
                return False

    def admit(self) -> Request | None:
        if not self.waiting or len(self.prefilling) + len(self.decoding) >= self.max_requests:
            return None
        head = self.waiting[0]
        if self.blocked and self.blocked[0] == head.key and self.num_unpromised() < self.blocked[1]:
            return None
        hits: list[Block] = []
        while self.reuse and (end := (len(hits) + 1) * self.block_tokens) < len(head.tokens):
            if (block := self.index.get(tuple(head.tokens[:end]))) is None:
                break
            hits.append(block)
        cold = [b for b in hits if b.num_owners == 0]
        protected = head.num_preemptions >= self.max_preempt
        reserve = head.max_kv if protected else min(len(head.tokens) + self.margin, head.max_kv)
        need = -(-reserve // self.block_tokens) - len(hits)
        if need + len(cold) > self.num_unpromised():
            wanted = tuple(head.tokens[: (len(hits) + 1) * self.block_tokens])
            self.blocked = (head.key, need + len(cold), wanted)
            return None
        self.blocked = None
        for block in hits:
            if block.num_owners == 0:
                self.free.remove(block)
            block.num_owners += 1
        self.waiting.pop(0)
        head.blocks, head.num_published, head.promise = hits, len(hits), need
        self.promised += need
        head.computed = len(hits) * self.block_tokens
        if head.num_cached is None:
            head.num_cached = head.computed
        self.prefilling.append(head)
        return head

    def take(self, request, upto):
        while len(request.blocks) * self.block_tokens < upto:
            block = self.free.pop(0)
            if block.key is not None:
                del self.index[block.key]
                block.key = None
            block.num_owners = 1
            request.blocks.append(block)
            request.promise -= 1
            self.promised -= 1

    def commit(self, rows, sampled) -> list[tuple]:
        """(id, tokens, finished, cached, num_sampled) per row that sampled."""
        ids = iter(sampled)
        deltas = []
        for row in rows:
            request = row.request
            if request not in self.prefilling and request not in self.decoding:
                if row.samples:
                    next(ids)
                continue
            request.computed += row.num_tokens
            if row.samples:
                request.tokens.append(next(ids))
            self.publish(request)
            if row.samples:
                num_sampled = len(request.tokens) - request.num_prompt
                finished = num_sampled == request.max_new
                deltas.append(
                    (request.id, request.tokens[-1:], finished, request.num_cached, num_sampled)
                )
                if finished:
                    self.decoding.remove(request)
                    self.give_back(request)
        return deltas

    def publish(self, request):
        while self.reuse and (request.num_published + 1) * self.block_tokens <= request.computed:
            column = request.num_published
            key = tuple(request.tokens[: (column + 1) * self.block_tokens])
            twin = self.index.get(key)
            if twin is None:
                request.blocks[column].key = key
                self.index[key] = request.blocks[column]
            elif twin is not request.blocks[column]:
                if twin.num_owners == 0:
                    if self.num_unpromised() < 1:
                        return
                    self.free.remove(twin)
                twin.num_owners += 1
                self.release(request.blocks[column])
                request.blocks[column] = twin
            request.num_published += 1
            if self.blocked and self.blocked[2] == key:
                self.blocked = None

    def release(self, block):
        block.num_owners -= 1
        if block.num_owners == 0:
            self.free.insert(0 if block.key is None else len(self.free), block)

    def give_back(self, request):
        for block in reversed(request.blocks):
            self.release(block)
        self.promised -= request.promise
        request.blocks, request.num_published, request.promise, request.computed = [], 0, 0, 0
