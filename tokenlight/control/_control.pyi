"""
The scheduler in C++: convert, name, document; nothing is decided here.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


class CacheGroup:
    """Layers that keep their KV alike: full, sliding_window or recurrent."""

    def __init__(self, kind: str, *, num_blocks: int, window_tokens: int = 0) -> None: ...

    @property
    def kind(self) -> str: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def window_tokens(self) -> int: ...

class SchedulerConfig:
    """Sizes and depths that a scheduler is made with."""

    def __init__(self, *, num_blocks: int, block_tokens: int, max_num_requests: int, max_step_tokens: int, max_model_tokens: int, prefix_reuse: bool = True, hash_key: bytes, overlap: int = 0, output_margin_tokens: int = 64, max_preemptions: int = 3, min_copy_tokens: int = 0, max_events: int = 0, num_host_blocks: int = 0, more_groups: Sequence[CacheGroup] = []) -> None:
        """
        num_blocks is of the first group, full attention; a hybrid model names its other groups in more_groups. hash_key: 16 secret bytes, so that nobody can aim for a prefix collision.
        """

    @property
    def num_blocks(self) -> int: ...

    @property
    def more_groups(self) -> list[CacheGroup]: ...

    @property
    def hash_key(self) -> bytes: ...

    @property
    def output_margin_tokens(self) -> int: ...

    @property
    def max_preemptions(self) -> int: ...

    @property
    def min_copy_tokens(self) -> int: ...

    @property
    def max_events(self) -> int: ...

    @property
    def num_host_blocks(self) -> int: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def max_num_requests(self) -> int: ...

    @property
    def max_step_tokens(self) -> int: ...

    @property
    def max_model_tokens(self) -> int: ...

    @property
    def prefix_reuse(self) -> bool: ...

    @property
    def overlap(self) -> int: ...

class StepGuard:
    """The right to commit one step, once. Owned by its plan."""

    @property
    def step(self) -> int: ...

class StepPlan:
    """
    What the runner executes next: R requests (decodes first, then prefill chunks), T tokens, S sampled rows. Run `copies`, then the forward. Each view is made when it is read: read once.
    """

    @property
    def guard(self) -> StepGuard:
        """Hand it to commit. A plan that is dropped before stops the scheduler."""

    @property
    def num_requests(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_sampled(self) -> int: ...

    @property
    def request_ids(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), writable=False)]:
        """int64[R]"""

    @property
    def slots(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[R]: row in the block table"""

    @property
    def token_ids(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """
        int32[T]; -1 (only with overlap): the last id sampled for this slot, still on the device
        """

    @property
    def positions(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[T]"""

    @property
    def query_starts(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[R + 1]"""

    @property
    def kv_lens(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[R]: tokens of KV once this step has written its own"""

    @property
    def sampled_rows(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[S]: index into T"""

    @property
    def sampled_requests(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), writable=False)]:
        """int32[S]: index into R"""

    @property
    def state_blocks(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None, None), writable=False)]:
        """
        int32[R, recurrent groups, 2]: the block read and the block written; reads -1: from zero
        """

    @property
    def copies(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), writable=False)]:
        """
        int32[C, 3]: from block, to block, tokens at their head; before the forward
        """

    @property
    def patches(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), writable=False)]:
        """
        int32[P, 4]: group, slot, column, block; what changed in the block tables since the last plan
        """

    @property
    def block_table(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), writable=False)]:
        """
        int32[max_num_requests, max_blocks]: persistent, indexed by slot; only columns that hold a row's kv_lens are meaningful, and they stay as they are until its step is committed
        """

    def group_table(self, group: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), writable=False)]:
        """As block_table, of another cache group."""

class CopyGuard:
    """The right to say how one copy ended, once. Owned by its plan."""

class CopyPlan:
    """
    Whole blocks to copy between the device and the host; not part of a step.
    """

    @property
    def guard(self) -> CopyGuard:
        """Hand it to commit_copy."""

    @property
    def rows(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), writable=False)]:
        """
        int32[C, 3]: 1 for device to host or 0 for host to device, device block, host block
        """

class Delta:
    """What one step did for one request."""

    @property
    def id(self) -> int: ...

    @property
    def token_ids(self) -> list[int]:
        """New tokens, without the stop token."""

    @property
    def finish_reason(self) -> str | None:
        """stop, length, deadline, or None while it runs."""

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the cache served."""

    @property
    def num_sampled_tokens(self) -> int:
        """So far, the stop token included."""

class Stats:
    """
    Counts: totals since the start unless they say running, waiting or free.
    """

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def num_free_blocks(self) -> int:
        """Cached ones included."""

    @property
    def num_blocks(self) -> int: ...

    @property
    def num_cached_blocks(self) -> int:
        """Free blocks whose contents can still serve a prefix."""

    @property
    def num_free_host_blocks(self) -> int:
        """Cached ones included."""

    @property
    def num_host_blocks(self) -> int: ...

    @property
    def num_steps_in_flight(self) -> int: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_cached_tokens(self) -> int: ...

    @property
    def num_sampled_tokens(self) -> int: ...

    @property
    def num_preemptions(self) -> int: ...

    @property
    def num_steps(self) -> int: ...

class Explanation:
    """Why a prompt was served from the cache as far as it was."""

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_cached_tokens(self) -> int: ...

    @property
    def first_divergent_token(self) -> int:
        """
        Offset of the first token that is not known to follow; num_prompt_tokens when all are.
        """

    @property
    def cause(self) -> str:
        """none, never_seen, evicted, salt, reuse_off or not_admitted."""

    @property
    def num_preemptions(self) -> int: ...

class KvEvent:
    """One change of what a prefix could be served from."""

    @property
    def sequence(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def block(self) -> int: ...

    @property
    def key(self) -> bytes: ...

    @property
    def parent(self) -> bytes: ...

class Scheduler:
    """
    Decides what each step computes and who owns which block. The GIL is kept: a call is shorter than handing it over.
    """

    def __init__(self, config: SchedulerConfig) -> None: ...

    def submit(self, id: int, prompt_token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, max_new_tokens: int, stop_token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, priority: int = 0, deadline_us: int | None = None, cache_salt: bytes = ..., adapter_id: int = 0) -> None:
        """
        Take a request; its id is unique among unfinished ones. Lower priority runs first.
        """

    def abort(self, id: int) -> bool:
        """False when the request is unknown or has finished."""

    def propose(self, id: int, draft_token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Tokens that may follow, to be judged by the request's next step. Ignored while a step in flight samples for it.
        """

    def plan(self, now_us: int) -> StepPlan | None:
        """The next step, or None when there is nothing to plan now."""

    def commit(self, guard: StepGuard, sampled_token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], num_accepted: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> list[Delta]:
        """
        A step is back: int32[S] ids, and per row that sampled how many of its ids stand (None: each its one).
        """

    def plan_copies(self) -> CopyPlan | None:
        """
        The next blocks to copy between device and host, or None. Several may be open at once.
        """

    def commit_copy(self, guard: CopyGuard, *, has_succeeded: bool) -> None:
        """
        A copy is over. One that failed, or took too long, only costs what it would have saved.
        """

    def take_deltas(self) -> list[Delta]:
        """
        What ended without a step (past its deadline); commit returns these as well.
        """

    def stats(self) -> Stats: ...

    def explain(self, id: int) -> Explanation | None:
        """
        Of an unfinished or recently finished request; None when it is not known any more.
        """

    def num_cached_tokens(self, prompt_token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, cache_salt: bytes = ..., adapter_id: int = 0) -> int:
        """
        What the cache would serve of a prompt if it were submitted and admitted now.
        """

    def events(self, from_sequence: int) -> list[KvEvent]:
        """Changes of the prefix cache, numbered without gaps from 0."""

    @property
    def max_request_tokens(self) -> int:
        """Longest prompt and output together."""
