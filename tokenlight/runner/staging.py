# SPDX-License-Identifier: Apache-2.0
"""StepPlan -> Step on a device of its own: a step's inputs travel in one copy, tables stay there.

Shapes: T tokens, R requests, S sampled rows of a step. A frame may be larger than the plan that is
put into it: the rows beyond are padding, which reads and writes one block that no request has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tokenlight.control import Plan
from tokenlight.nn import KvCache, Step
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampler import RowParams, Sampler

_ALIGN_WORDS = 4  # 16 bytes: what a vector load wants
# More changes than that are not patched: the whole table is copied.
_MAX_PATCHES = 4096
# Views of so few are kept: a step of decodes has no more.
_KEPT_PATCHES = 64


class Size(NamedTuple):
    """Rows of a step, and how far they reach."""

    num_tokens: int
    num_requests: int
    num_sampled: int
    longest_tokens: int
    """In the cache of one of its requests, this step's included."""


class _Field(NamedTuple):
    """A run of the staged words. `per` is what it has an entry for: "T", "R" or "S"."""

    name: str
    per: str
    dtype: np.dtype[np.generic]
    extra: int = 0


_I32, _I64, _F32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)
_FIELDS = (
    _Field("token_ids", "T", _I32),
    _Field("positions", "T", _I32),
    _Field("query_starts", "R", _I32, extra=1),
    _Field("kv_lens", "R", _I32),
    _Field("slots", "R", _I32),
    _Field("sampled_rows", "S", _I32),
    _Field("sampled_slots", "S", _I64),
    _Field("temperature", "S", _F32),
    _Field("top_k", "S", _I32),
    _Field("top_p", "S", _F32),
    _Field("min_p", "S", _F32),
    _Field("seeds", "S", _I64),
    _Field("sampled_positions", "S", _I32),
)
# Fields of `RowParams` -> where they are staged.
_PARAMS = {
    "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "seeds": "seeds", "positions": "sampled_positions",
}  # fmt: skip
_NEUTRAL = {
    "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seeds": 0, "sampled_positions": 1,
}  # fmt: skip
_TORCH = {_I32: torch.int32, _I64: torch.int64, _F32: torch.float32}


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the inputs of steps of one size lie: on the host once per buffer, and on the device."""

    size: Size
    num_words: int
    hosts: tuple[dict[str, NDArray[np.generic]], ...]
    step: Step
    params: RowParams
    sampled_slots: Tensor
    patches: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Places and blocks of so many patches behind the words, as far as they were needed."""
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)
    """(Buffer, number of words) -> where so many words lie on the device, and on the host."""


class Put(NamedTuple):
    """What was staged; the words are valid until their buffer's next turn."""

    words: NDArray[np.int32]
    num_patches: int
    """Whose places and blocks are the last of the words."""
    table: NDArray[np.int32] | None
    """The whole block table, where it was copied."""


class Staging:
    """Host buffers that take turns, device memory that steps read, tables that persist there."""

    def __init__(self, config: ResolvedConfig, kv: KvCache, device: torch.device) -> None:
        self._kv = kv
        self._pad_slot = config.max_num_requests
        self._block_tokens = config.block_tokens
        num_columns = -(-config.max_model_tokens // config.block_tokens)
        num_tokens = config.max_step_tokens
        # A group of ranks that has fewer tokens than another is padded by requests of one each.
        num_requests = config.max_num_requests if config.num_groups == 1 else num_tokens
        largest = Size(num_tokens, num_requests, num_tokens, config.max_model_tokens)
        num_words = sum(_words(each, largest) for each in _FIELDS) + 3 * _MAX_PATCHES
        # A step may be staged while `overlap` others have not been waited for.
        self._hosts = [
            torch.zeros(num_words, dtype=torch.int32, pin_memory=device.type == "cuda")
            for _ in range(config.overlap + 1)
        ]
        self._host_words = [host.numpy() for host in self._hosts]
        # Whose decode each of them holds.
        self._who: list[tuple[object, ...] | None] = [None] * len(self._hosts)
        self._turn = 0
        self._device = torch.zeros(num_words, dtype=torch.int32, device=device)
        self.last_ids = torch.zeros(self._pad_slot + 1, dtype=torch.int32, device=device)
        """The id that was last sampled for each slot."""
        self._table = torch.full(
            (self._pad_slot + 1, num_columns), config.num_blocks, dtype=torch.int32, device=device
        )
        self._flat_table = self._table.view(-1)
        self._is_stale = False

    def frame(self, size: Size, table_tokens: int | None = None) -> Frame:
        """Its views; the memory is the same for all frames, so one is filled at a time.

        Args:
            size: of the steps.
            table_tokens: the first columns of the block table, for requests of so many tokens; None
                for all.
        """
        num_columns = self._table.shape[1]
        if table_tokens is not None:
            num_columns = min(-(-table_tokens // self._block_tokens), num_columns)
        starts = dict(
            zip(
                (each.name for each in _FIELDS),
                accumulate((_words(each, size) for each in _FIELDS), initial=0),
                strict=False,
            )
        )
        ends = {each.name: starts[each.name] + _exact_words(each, size) for each in _FIELDS}
        on_device = {
            each.name: self._device[starts[each.name] : ends[each.name]].view(_TORCH[each.dtype])
            for each in _FIELDS
        }
        hosts = tuple(
            {
                each.name: words[starts[each.name] : ends[each.name]].view(each.dtype)
                for each in _FIELDS
            }
            for words in self._host_words
        )
        return Frame(
            size=size,
            num_words=sum(_words(each, size) for each in _FIELDS),
            hosts=hosts,
            step=Step(
                token_ids_T=on_device["token_ids"],
                positions_T=on_device["positions"],
                query_starts=on_device["query_starts"],
                kv_lens=on_device["kv_lens"],
                slots=on_device["slots"],
                block_table=self._table[:, :num_columns],
                sampled_rows=on_device["sampled_rows"],
                kv=self._kv,
            ),
            params=RowParams(**{name: on_device[field] for name, field in _PARAMS.items()}),
            sampled_slots=on_device["sampled_slots"],
        )

    def put(self, plan: Plan, frame: Frame, sampler: Sampler) -> Put:
        """Write a plan and its requests' parameters, and queue the copy to the device."""
        turn = self._turn
        host, words = frame.hosts[turn], self._host_words[turn]
        self._turn = (turn + 1) % len(self._hosts)
        is_stale, self._is_stale = self._is_stale, True
        who = _who(plan, frame.size, sampler)
        if who is not None and who == self._who[turn]:
            _go_on(plan, host)
        else:
            self._who[turn] = None
            _fill(plan, host, sampler)
            _pad(size_of(plan), frame.size, host, self._pad_slot)
            self._who[turn] = who
        patches, end, table = plan.patches, frame.num_words, None
        if is_stale or len(patches) > _MAX_PATCHES:
            # After a step that failed on its way here, nobody knows what was applied.
            table, patches = np.array(plan.block_table), patches[:0]
            is_stale = not table.size
        if len(patches):
            end += self._write_patches(patches, words[end:])
        put = Put(words[:end], (end - frame.num_words) // 3, table)
        self._queue(put, frame, turn)
        self._is_stale = is_stale  # as long as the group has no request, it has no table
        return put

    def doubt(self) -> None:
        """What was put may not have been brought: the next step brings the whole table."""
        self._is_stale = True

    def repeat(self, put: Put, frame: Frame) -> None:
        """Queue what another rank has put into its frame of this size."""
        turn = self._turn
        self._turn = (turn + 1) % len(self._hosts)
        self._host_words[turn][: len(put.words)] = put.words
        self._queue(put, frame, turn)

    def _queue(self, put: Put, frame: Frame, turn: int) -> None:
        if put.table is not None:
            rows, columns = put.table.shape
            self._table[:rows, :columns].copy_(torch.from_numpy(np.array(put.table)))
        end = len(put.words)
        views = frame.copies.get((turn, end))
        if views is None:
            views = self._device[:end], self._hosts[turn][:end]
            if put.num_patches <= _KEPT_PATCHES:
                frame.copies[turn, end] = views
        views[0].copy_(views[1], non_blocking=True)
        if put.num_patches:
            self._apply_patches(frame, put.num_patches)

    def put_padding(self, frame: Frame) -> None:
        """Fill a frame with padding alone, for a run that is not a step; waits for the copy."""
        self._who[0] = None
        _pad(Size(0, 0, 0, 0), frame.size, frame.hosts[0], self._pad_slot)
        self._device[: frame.num_words].copy_(self._hosts[0][: frame.num_words])

    def _write_patches(self, patches: NDArray[np.int32], words: NDArray[np.int32]) -> int:
        """Flat places, int64, then blocks; of a place that changed twice, what it became last.

        Returns:
            How many words these are.
        """
        width = self._table.shape[1]
        latest = {slot * width + column: block for _, slot, column, block in patches.tolist()}
        num = len(latest)
        words[: 2 * num].view(np.int64)[:] = list(latest)
        words[2 * num : 3 * num] = list(latest.values())
        return 3 * num

    def _apply_patches(self, frame: Frame, num: int) -> None:
        """Of `num` places, which the frame's words have brought."""
        views = frame.patches.get(num)
        if views is None:
            words = self._device[frame.num_words : frame.num_words + 3 * num]
            views = words[: 2 * num].view(torch.int64), words[2 * num :]
            if num <= _KEPT_PATCHES:
                frame.patches[num] = views
        self._flat_table.index_copy_(0, *views)


def _who(plan: Plan, size: Size, sampler: Sampler) -> tuple[object, ...] | None:
    """What is the same in the next step where all requests only decode; None for other steps."""
    if plan.num_tokens != plan.num_requests or plan.num_tokens != plan.num_sampled:
        return None
    rows = size._replace(longest_tokens=0)
    return (rows, sampler.num_added, plan.request_ids.tobytes(), plan.slots.tobytes())


def _go_on(plan: Plan, host: dict[str, NDArray[np.generic]]) -> None:
    """Of a decode of the same requests, write what changes."""
    num = plan.num_tokens
    positions = plan.positions
    host["token_ids"][:num] = plan.token_ids
    host["positions"][:num] = positions
    host["kv_lens"][:num] = plan.kv_lens
    np.add(positions, 1, out=host["sampled_positions"][:num])


def _fill(plan: Plan, host: dict[str, NDArray[np.generic]], sampler: Sampler) -> None:
    num_tokens, num_requests, num_sampled, _ = size_of(plan)
    slots = plan.slots
    host["token_ids"][:num_tokens] = plan.token_ids
    host["positions"][:num_tokens] = plan.positions
    host["query_starts"][: num_requests + 1] = plan.query_starts
    host["kv_lens"][:num_requests] = plan.kv_lens
    host["slots"][:num_requests] = slots
    host["sampled_rows"][:num_sampled] = plan.sampled_rows
    host["sampled_slots"][:num_sampled] = slots[plan.sampled_requests]
    for name, column in sampler.columns(plan).items():
        host[_PARAMS[name]][:num_sampled] = column


def _pad(filled: Size, size: Size, host: dict[str, NDArray[np.generic]], pad_slot: int) -> None:
    """Each row beyond the plan is a request of its own: one token at position 0.

    Where sampled rows are padded, each such row is.
    """
    if filled.num_requests == size.num_requests:
        return
    num_tokens, num_requests, num_sampled, _ = filled
    host["token_ids"][num_tokens:] = 0
    host["positions"][num_tokens:] = 0
    host["query_starts"][num_requests:] = np.arange(num_tokens, size.num_tokens + 1)
    host["kv_lens"][num_requests:] = 1
    host["slots"][num_requests:] = pad_slot
    padding = np.arange(num_tokens, size.num_tokens)
    host["sampled_rows"][num_sampled:] = padding[: size.num_sampled - num_sampled]
    host["sampled_slots"][num_sampled:] = pad_slot
    for name, neutral in _NEUTRAL.items():
        host[name][num_sampled:] = neutral


def sizes_of(plans: Sequence[Plan]) -> list[Size]:
    """Of the groups' parts of a step, padded to equally many tokens by requests of one each."""
    most = max(plan.num_tokens for plan in plans)
    return [
        size_of(plan)._replace(
            num_tokens=most, num_requests=plan.num_requests + most - plan.num_tokens
        )
        for plan in plans
    ]


def size_of(plan: Plan) -> Size:
    longest_tokens = int(plan.kv_lens.max(initial=0))
    return Size(plan.num_tokens, plan.num_requests, plan.num_sampled, longest_tokens)


def _exact_words(field: _Field, size: Size) -> int:
    count = {"T": size.num_tokens, "R": size.num_requests, "S": size.num_sampled}[field.per]
    return (count + field.extra) * (field.dtype.itemsize // 4)


def _words(field: _Field, size: Size) -> int:
    return -(-_exact_words(field, size) // _ALIGN_WORDS) * _ALIGN_WORDS
