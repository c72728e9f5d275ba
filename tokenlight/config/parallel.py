# SPDX-License-Identifier: Apache-2.0
"""Over how many ranks, a process each, the model is spread."""

from dataclasses import dataclass, field, fields

from tokenlight.base.errors import ConfigError
from tokenlight.config.field import FLAG, flag

_MOST_RANKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """Widths of the groups of ranks that share a layer. Sizes must divide each other."""

    tp: int = field(default=1, metadata=flag("--tensor-parallel-size"))
    """Ranks that share every layer."""

    dp: int = field(default=1, metadata=flag("--data-parallel-size"))
    """Groups of ranks that have different tokens in attention, and share the other layers.

    Each has as many requests as one engine may have, and KV of its own.
    """

    attn_tp: int | None = field(default=None, metadata=flag("--attn-tp-size"))
    """Ranks that share the heads of attention. Default: --tensor-parallel-size."""

    dense_tp: int | None = field(default=None, metadata=flag("--dense-tp-size"))
    """Ranks that share a dense feed-forward layer. Default: all.

    1 beside expert parallelism lets tokens be sent to their experts' ranks alone.
    """

    moe_tp: int | None = field(default=None, metadata=flag("--moe-tp-size"))
    """Ranks that share each expert. Default: what --expert-parallel-size leaves."""

    ep: int = field(default=1, metadata=flag("--expert-parallel-size"))
    """Groups of ranks that have different experts."""

    def __post_init__(self) -> None:
        for each in fields(self):
            size = getattr(self, each.name)
            if size is not None and not 1 <= size <= _MOST_RANKS:
                name = each.metadata[FLAG]["name"]
                raise ConfigError(f"{name} must be from 1 to {_MOST_RANKS}, got {size}")
        for width, groups, names in (
            (self.attn_width, self.dp, "--attn-tp-size x --data-parallel-size"),
            (self.moe_width, self.ep, "--moe-tp-size x --expert-parallel-size"),
        ):
            if width * groups != self.num_ranks:
                raise ConfigError(
                    f"{names} is {width} x {groups}, but there are {self.num_ranks} ranks; the "
                    f"product must be that number"
                )
        if self.num_ranks > _MOST_RANKS:
            raise ConfigError(f"{self.num_ranks} ranks are asked for, at most {_MOST_RANKS} can be")

    @property
    def attn_width(self) -> int:
        return self.attn_tp or self.tp

    @property
    def dense_width(self) -> int:
        return self.dense_tp or self.num_ranks

    @property
    def moe_width(self) -> int:
        return self.moe_tp or max(1, self.num_ranks // self.ep)

    @property
    def num_ranks(self) -> int:
        """All of them."""
        return max(self.attn_width * self.dp, self.ep * (self.moe_tp or 1), self.dense_tp or 1)
