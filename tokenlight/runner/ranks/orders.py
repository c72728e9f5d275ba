# SPDX-License-Identifier: Apache-2.0
"""What a rank is told when it starts: the first line on its standard input, as JSON."""

import msgspec

from tokenlight.base.log import LogLevel
from tokenlight.config import EngineConfig


class RankOrders(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's; all but `rank` is the same for all."""

    config: EngineConfig
    rank: int
    store_port: int
    """Where the leading rank keeps the store through which all ranks find each other."""
    num_blocks: int
    """Of every rank's KV pool."""
    num_columns: int
    """Of the block table."""
    log_level: LogLevel
