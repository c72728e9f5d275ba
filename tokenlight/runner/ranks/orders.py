# SPDX-License-Identifier: Apache-2.0
"""What a rank is told when it starts: the first line on its standard input, as JSON.

Ranks that a launcher started are told by a broadcast, the text's bytes as words.
"""

import msgspec
import numpy as np

from tokenlight.base.log import LogLevel
from tokenlight.config import EngineConfig
from tokenlight.runner.ranks.message import Words


class RankOrders(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's; all but `rank` is the same for all."""

    config: EngineConfig
    rank: int
    device: str
    """The leading rank's: "cpu" or "cuda"."""
    store_port: int
    """Where the leading rank keeps the store through which all ranks find each other."""
    log_level: LogLevel
    door: tuple[str, int] = ("", 0)
    """Where ranks that a launcher started come in to be heard of, with the key."""
    key: str = ""


def pack_orders(orders: RankOrders) -> Words:
    """As words; blanks fill the last one."""
    text = msgspec.json.encode(orders)
    return np.frombuffer(text + b" " * (-len(text) % 4), np.int32)


def unpack_orders(words: Words) -> RankOrders:
    """What `pack_orders` packed."""
    return msgspec.json.decode(words.tobytes(), type=RankOrders)
